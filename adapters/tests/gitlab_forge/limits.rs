use std::time::Duration;

use adapters::forge::gitlab::{BadGitLabOptions, GitLab, GitLabOptions};
use adapters::forge::{Forge, ForgeError};
use local::gitlab::{Fault, FaultEffect};

use crate::world::{TOKEN, World, adapter};

const BRANCHES: &str = "/repository/branches/";

async fn answer_to(world: &World, fault: Fault) -> ForgeError {
    world.standin.inject(fault);
    world.gitlab.target_head(&world.project).await.unwrap_err()
}

#[tokio::test]
async fn a_rate_limit_says_how_long_with_and_without_headers() {
    let limited = |seconds| Fault::rate_limited("GET", BRANCHES, seconds);
    for (seconds, wait) in [(Some(17), 17), (None, 30)] {
        let world = World::new().await;
        assert_eq!(answer_to(&world, limited(seconds)).await, ForgeError::RateLimited { retry_after_s: wait });
        // The others share the budget: none of them is sent.
        world.standin.clear_calls();
        let other = world.gitlab.open_with_prefix(&world.project, "muster/").await.unwrap_err();
        assert!(matches!(other, ForgeError::RateLimited { retry_after_s } if retry_after_s <= wait), "{other}");
        assert_eq!(world.standin.calls(), []);
    }
    let error = ForgeError::RateLimited { retry_after_s: 1 };
    assert!(error.is_transient());
}

#[tokio::test]
async fn whatever_leaves_the_effect_unknown_is_unreachable() {
    let world = World::new().await;
    let timed_out = FaultEffect::json(408, r#"{"error":"Request timed out"}"#);
    for fault in [
        Fault::bad_gateway("GET", BRANCHES),
        Fault::broken("GET", BRANCHES, false),
        Fault::lost_answer("GET", BRANCHES),
        Fault::new("GET", BRANCHES, timed_out),
        Fault::new("GET", BRANCHES, FaultEffect::json(200, "<html>Sign in</html>")),
    ] {
        let described = format!("{fault:?}");
        let error = answer_to(&world, fault).await;
        assert!(matches!(error, ForgeError::Unreachable { .. }), "{described}: {error}");
    }
    assert!(world.gitlab.target_head(&world.project).await.is_ok());
}

#[tokio::test]
async fn a_forge_that_is_down_is_not_asked_again_and_again() {
    let world = World::new().await;
    world.standin.inject(Fault::bad_gateway("GET", BRANCHES).times(100));
    for _ in 0..20 {
        let error = world.gitlab.target_head(&world.project).await.unwrap_err();
        assert!(matches!(error, ForgeError::Unreachable { .. }), "{error}");
    }
    assert_eq!(world.standin.calls().len(), 8);
}

#[tokio::test]
async fn a_call_ends_at_its_limit() {
    let world = World::new().await;
    let hasty = GitLab::new(GitLabOptions {
        base_url: world.standin.url(),
        token: TOKEN.to_owned(),
        connect_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_millis(200),
    })
    .unwrap();
    world.standin.inject(Fault::new("GET", BRANCHES, FaultEffect::Delay { ms: 60_000 }));
    let error = hasty.target_head(&world.project).await.unwrap_err();
    assert!(matches!(&error, ForgeError::Unreachable { detail } if detail.contains("0.2 s")), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_unreachable_and_the_token_is_in_no_text() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let world = World::new().await;
    let error = adapter(&format!("http://{free}"), TOKEN).target_head(&world.project).await.unwrap_err();
    assert!(matches!(error, ForgeError::Unreachable { .. }), "{error}");
    let wrong = adapter(&world.standin.url(), "glpat-wrong-token").target_head(&world.project).await.unwrap_err();
    assert!(matches!(wrong, ForgeError::Unauthorized { .. }), "{wrong}");
    for text in [format!("{error} {error:?}"), format!("{wrong} {wrong:?}")] {
        assert!(!text.contains("glpat"), "{text}");
    }
}

#[tokio::test]
async fn a_redirect_is_never_followed() {
    let world = World::new().await;
    let elsewhere = World::new().await;
    let moved = |status| {
        let to = format!("{}/api/v4/projects/42/repository/branches/main", elsewhere.standin.url());
        let effect = FaultEffect::Answer {
            status,
            body: String::new(),
            content_type: "text/plain".to_owned(),
            headers: vec![("Location".to_owned(), to)],
            after_effect: false,
        };
        Fault::new("GET", BRANCHES, effect)
    };
    let renamed = answer_to(&world, moved(301)).await;
    assert!(matches!(&renamed, ForgeError::NotFound { what } if what.contains("moved")), "{renamed}");
    assert!(matches!(answer_to(&world, moved(302)).await, ForgeError::Unexpected { status: 302, .. }));
    assert_eq!(elsewhere.standin.calls(), []);
}

#[tokio::test]
async fn a_body_without_end_is_not_taken_in() {
    let world = World::new().await;
    let body = format!("[{}1]", "1,".repeat(5 * 1024 * 1024));
    let error = answer_to(&world, Fault::new("GET", BRANCHES, FaultEffect::json(200, &body))).await;
    assert!(matches!(&error, ForgeError::Unexpected { detail, .. } if detail.contains("exceeds")), "{error}");
}

#[tokio::test]
async fn json_of_another_shape_is_an_alarm_and_no_crash() {
    let world = World::new().await;
    let error = answer_to(&world, Fault::new("GET", BRANCHES, FaultEffect::json(200, r#"{"name":"main"}"#))).await;
    assert!(matches!(error, ForgeError::Unexpected { status: 200, .. }), "{error}");
    assert!(!error.is_transient());
}

#[test]
fn options_that_cannot_work_are_refused_before_any_call() {
    let with = |base_url: &str, token: &str| {
        GitLab::new(GitLabOptions {
            base_url: base_url.to_owned(),
            token: token.to_owned(),
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(15),
        })
        .err()
    };
    assert!(matches!(with("gitlab.example.com", TOKEN), Some(BadGitLabOptions::BaseUrl { .. })));
    assert_eq!(with("https://gitlab.example.com", ""), Some(BadGitLabOptions::Token));
    assert_eq!(with("https://gitlab.example.com", "line\nbreak"), Some(BadGitLabOptions::Token));
    assert_eq!(with("https://gitlab.example.com", TOKEN), None);
}
