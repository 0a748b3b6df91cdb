use adapters::forge::{Forge, ForgeError, Preflight};
use local::gitlab::{Fault, FaultEffect, HookStatus, MergeMethod, SquashOption, Webhook};

use crate::world::World;

async fn problems(world: &World) -> Vec<String> {
    let found = world.gitlab.preflight(&world.project).await.unwrap();
    [found.refusals, found.problems].concat()
}

async fn refusals(world: &World) -> Vec<String> {
    world.gitlab.preflight(&world.project).await.unwrap().refusals
}

#[tokio::test]
async fn a_project_in_order_has_a_number_and_no_problems() {
    let world = World::new().await;
    let found = world.gitlab.preflight(&world.project).await.unwrap();
    assert_eq!(found, Preflight { project_id: 42, refusals: Vec::new(), problems: Vec::new() });
}

#[tokio::test]
async fn forced_squash_and_a_token_without_api_are_refused() {
    let world = World::new().await;
    world.standin.set_knobs(|knobs| {
        knobs.project.squash_option = SquashOption::Always;
        knobs.project.token_scopes = vec!["read_repository".to_owned()];
    });
    let found = problems(&world).await;
    assert!(found.len() == 2 && found[0].contains("squash") && found[1].contains("`api`"), "{found:?}");
}

#[tokio::test]
async fn settings_that_would_never_merge_are_told_one_by_one() {
    let world = World::new().await;
    let body = r#"{"id":42,"archived":true,"squash_option":"always","merge_requests_access_level":"disabled",
        "only_allow_merge_if_pipeline_succeeds":true,"builds_access_level":"disabled",
        "permissions":{"project_access":{"access_level":20},"group_access":null}}"#;
    world.standin.inject(Fault::new("GET", "/projects/", FaultEffect::json(200, body)));
    let found = problems(&world).await;
    assert_eq!(refusals(&world).await, Vec::<String>::new(), "the answer was injected once");
    for (number, word) in ["archived", "squash", "Merge requests", "CI/CD", "Developer"].into_iter().enumerate() {
        assert!(found[number].contains(word), "{found:?}");
    }
}

#[tokio::test]
async fn a_target_that_is_missing_or_shut_is_a_problem() {
    let mut world = World::new().await;
    world.standin.set_knobs(|knobs| knobs.project.may_merge = false);
    let shut = problems(&world).await;
    assert!(shut.len() == 1 && shut[0].contains("protected"), "{shut:?}");
    world.standin.set_knobs(|knobs| knobs.project.may_merge = true);
    world.project.target_branch = "gone".to_owned();
    let gone = problems(&world).await;
    assert!(gone.len() == 1 && gone[0].contains("no branch gone"), "{gone:?}");
}

#[tokio::test]
async fn a_token_that_cannot_be_read_or_cannot_do_the_work_is_a_problem() {
    let world = World::new().await;
    let said = |status, body: &str| Fault::new("GET", "/personal_access_tokens/self", FaultEffect::json(status, body));
    for (fault, word) in [
        (said(404, r#"{"message":"404 Not Found"}"#), "cannot be read"),
        (said(401, r#"{"message":"401 Unauthorized"}"#), "cannot be read"),
        (said(200, r#"{"scopes":["read_api"],"active":true}"#), "`api`"),
        (said(200, r#"{"scopes":["api"],"active":false,"expires_at":"2020-01-01"}"#), "2020-01-01"),
    ] {
        world.standin.inject(fault);
        let found = problems(&world).await;
        assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
    }
}

#[tokio::test]
async fn an_old_or_hidden_version_is_not_confused() {
    let world = World::new().await;
    world.standin.inject(Fault::new("GET", "/version", FaultEffect::json(200, r#"{"version":"14.10.5-ee"}"#)));
    let old = problems(&world).await;
    assert!(old.len() == 1 && old[0].contains("14.10.5-ee"), "{old:?}");
    world.standin.inject(Fault::new("GET", "/version", FaultEffect::json(403, r#"{"message":"403 Forbidden"}"#)));
    assert_eq!(problems(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_unknown_project_is_an_error() {
    let mut world = World::new().await;
    world.project.path = "acme/nothing".to_owned();
    assert!(matches!(world.gitlab.preflight(&world.project).await, Err(ForgeError::NotFound { .. })));
}

#[tokio::test]
async fn what_could_never_merge_is_refused_and_what_only_hinders_is_told() {
    let world = World::new().await;
    world.standin.set_knobs(|knobs| {
        knobs.project.squash_option = SquashOption::Always;
        knobs.project.merge_method = MergeMethod::Ff;
    });
    let found = world.gitlab.preflight(&world.project).await.unwrap();
    assert!(found.refusals.len() == 1 && found.refusals[0].contains("squash"), "{found:?}");
    assert!(found.problems.len() == 1 && found.problems[0].contains("merge method is ff"), "{found:?}");
}

#[tokio::test]
async fn a_webhook_that_gitlab_has_disabled_is_told_and_a_strangers_is_not() {
    let world = World::new().await;
    let hook = |url: &str| world.standin.set_webhook(Some(Webhook { url: url.to_owned(), secret: "s".to_owned() }));
    hook("http://127.0.0.1:9/webhooks/gitlab?key=hidden");
    assert_eq!(problems(&world).await, Vec::<String>::new());
    world.standin.set_knobs(|knobs| knobs.webhook_status = HookStatus::TemporarilyDisabled);
    let found = problems(&world).await;
    assert!(found.len() == 1 && found[0].contains("temporarily_disabled until 2099") && !found[0].contains("hidden"), "{found:?}");
    hook("http://127.0.0.1:9/somebody/else");
    assert_eq!(problems(&world).await, Vec::<String>::new());
    let hooks = r#"[{"url":"https://x.example/webhooks/gitlab","merge_requests_events":true,"pipeline_events":false}]"#;
    world.standin.inject(Fault::new("GET", "/hooks", FaultEffect::json(200, hooks)));
    let found = problems(&world).await;
    assert!(found.len() == 1 && found[0].contains("pipeline events"), "{found:?}");
    world.standin.inject(Fault::new("GET", "/hooks", FaultEffect::json(403, r#"{"message":"403 Forbidden"}"#)));
    assert_eq!(problems(&world).await, Vec::<String>::new(), "who may not see them is told nothing");
}
