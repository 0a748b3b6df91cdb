use adapters::forge::{Forge, ForgeError};
use local::gitlab::{Fault, FaultEffect};

use crate::world::World;

#[tokio::test]
async fn the_targets_own_pipelines_are_asked_for_and_the_last_finished_one_decides() {
    let world = World::new().await;
    let head = world.head().await;
    // A stand-in runs no pipelines of the target branch: nothing has failed.
    assert!(!world.gitlab.target_red(&world.project, &head).await.unwrap());
    let listed = format!(
        r#"[{{"id":9,"sha":"later","status":"success"}},{{"id":8,"sha":"{head}","status":"running"}},
            {{"id":7,"sha":"{head}","status":"failed","source":"push","a_field_of_tomorrow":1}}]"#
    );
    let list = "/pipelines?ref=main&order_by=id&sort=desc&per_page=20";
    world.standin.inject(Fault::new("GET", list, FaultEffect::json(200, &listed)));
    assert!(world.gitlab.target_red(&world.project, &head).await.unwrap());
}

#[tokio::test]
async fn disabled_pipelines_are_not_taken_for_green_ones() {
    let world = World::new().await;
    world.standin.inject(Fault::new("GET", "/pipelines?", FaultEffect::json(403, r#"{"message":"403 Forbidden"}"#)));
    let answer = world.gitlab.target_red(&world.project, &world.head().await).await;
    assert!(matches!(answer, Err(ForgeError::Unauthorized { .. })), "{answer:?}");
}
