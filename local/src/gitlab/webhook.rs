//! Webhooks out: queued as things happen, sent once by a task of their own, never retried, logged.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    app::App,
    chaos::Fate,
    knobs::{HookStatus, take},
    merge_request::Person,
    payload,
    pipeline::Status,
    signing,
    world::World,
};

/// Where events go, and the secret: `whsec_<base64>` signs deliveries, any other is sent as `X-Gitlab-Token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    pub url: String,
    pub secret: String,
}

/// One attempt to deliver an event; `status` is `None` where no answer came.
#[derive(Clone, Debug, Serialize)]
pub struct Delivery {
    pub event: String,
    /// `open`, `merge`, … of a merge request; the status of a pipeline.
    pub action: String,
    pub idempotency_key: String,
    pub status: Option<u16>,
    #[serde(skip)]
    sent: Outgoing,
}

#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    hook: Webhook,
    event: &'static str,
    action: String,
    idempotency_key: String,
    body: String,
}

/// What happened to a merge request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Open,
    Push { old: String },
    Update,
    Close,
    Reopen,
    Merge,
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Push { .. } | Self::Update => "update",
            Self::Close => "close",
            Self::Reopen => "reopen",
            Self::Merge => "merge",
        }
    }
}

/// GitLab's `webhook_timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many receivers' answers are awaited at the same time: events overtake one another, as with GitLab.
const PARALLEL: usize = 4;

impl App {
    /// Queues the event of a merge request, as it is now.
    pub fn announce(&self, world: &mut World, iid: u64, action: Action, by: &Person) {
        let Some(found) = world.merge_requests.get(&iid) else { return };
        let body = payload::merge_request(self, world, found, &action, by);
        self.queue(world, "Merge Request Hook", action.name(), &body);
    }

    pub fn announce_pipeline(&self, world: &mut World, id: u64) {
        let Some(pipeline) = world.pipelines.get(&id) else { return };
        let action = pipeline.status.name();
        let body = payload::pipeline(self, world, pipeline);
        self.queue(world, "Pipeline Hook", action, &body);
    }

    /// Takes a pipeline to a status and tells the hook.
    pub fn enter(&self, world: &mut World, id: u64, status: Status) {
        if let Some(pipeline) = world.pipelines.get_mut(&id) {
            pipeline.enter(status);
            self.announce_pipeline(world, id);
            self.wake.notify_one();
        }
    }

    fn queue(&self, world: &mut World, event: &'static str, action: &str, body: &Value) {
        let Some(mut hook) = world.webhook.clone().filter(|_| world.knobs.webhook_status == HookStatus::Executable) else { return };
        let fate = world.chaos.webhook();
        if take(&mut world.knobs.webhooks_dropped) || fate == Fate::Dropped {
            return;
        }
        if take(&mut world.knobs.webhooks_forged) {
            hook.secret = signing::another(&hook.secret);
        }
        let idempotency_key = uuid::Uuid::now_v7().to_string();
        let outgoing = Outgoing { hook, event, action: action.to_owned(), idempotency_key, body: body.to_string() };
        if take(&mut world.knobs.webhooks_delayed) {
            let (queue, delay) = (self.outgoing.clone(), Duration::from_millis(world.knobs.webhooks_delay_ms));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // Nobody takes it where the stand-in has stopped meanwhile.
                let _ = queue.send(outgoing);
            });
            return;
        }
        if take(&mut world.knobs.webhooks_reordered) || fate == Fate::Reordered {
            if let Some(overtaken) = world.held.replace(outgoing) {
                self.hand_over(overtaken);
            }
            return;
        }
        if take(&mut world.knobs.webhooks_doubled) || fate == Fate::Doubled {
            self.hand_over(outgoing.clone());
        }
        self.hand_over(outgoing);
        if let Some(overtaken) = world.held.take() {
            self.hand_over(overtaken);
        }
    }

    fn hand_over(&self, outgoing: Outgoing) {
        if self.outgoing.send(outgoing).is_err() {
            tracing::debug!("the stand-in is stopping; an event is not sent");
        }
    }

    /// Sends the n-th delivery once more, under its own key. `false`: there is none.
    pub(crate) fn resend(&self, number: usize) -> bool {
        let sent = self.world().deliveries.get(number).map(|delivery| delivery.sent.clone());
        sent.map(|sent| self.hand_over(sent)).is_some()
    }

    /// Sends what is queued; runs until the stand-in stops.
    pub async fn run_webhooks(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<Outgoing>) {
        let mut sending = tokio::task::JoinSet::new();
        while let Some(outgoing) = queue.recv().await {
            if sending.len() >= PARALLEL {
                drop(sending.join_next().await);
            }
            while sending.try_join_next().is_some() {}
            let app = Arc::clone(&self);
            sending.spawn(async move { app.deliver(outgoing).await });
        }
    }

    async fn deliver(&self, outgoing: Outgoing) {
        let unique = || uuid::Uuid::now_v7().to_string();
        let timestamp = time::OffsetDateTime::now_utc().unix_timestamp().to_string();
        let mut request = self
            .client
            .post(&outgoing.hook.url)
            .timeout(TIMEOUT)
            .header("content-type", "application/json")
            .header("user-agent", concat!("GitLab/", "19.4.1"))
            .header("x-gitlab-event", outgoing.event)
            .header("x-gitlab-instance", self.url())
            .header("x-gitlab-event-uuid", unique())
            .header("x-gitlab-webhook-uuid", unique())
            .header("idempotency-key", &outgoing.idempotency_key)
            .header("webhook-id", &outgoing.idempotency_key)
            .header("webhook-timestamp", &timestamp);
        request = match signing::signature(&outgoing.hook.secret, &outgoing.idempotency_key, &timestamp, &outgoing.body) {
            Some(signature) => request.header("webhook-signature", signature),
            None => request.header("x-gitlab-token", &outgoing.hook.secret),
        };
        let status = match request.body(outgoing.body.clone()).send().await {
            Ok(answer) => Some(answer.status().as_u16()),
            Err(error) => {
                tracing::debug!(%error, url = outgoing.hook.url, "a webhook was not delivered and will not be sent again");
                None
            }
        };
        let mut world = self.world();
        let has_failed = status.is_none_or(|status| !(200..300).contains(&status));
        world.hook_failures = if has_failed { world.hook_failures + 1 } else { 0 };
        if world.knobs.webhook_disabled_after > 0 && world.hook_failures >= world.knobs.webhook_disabled_after {
            world.knobs.webhook_status = HookStatus::TemporarilyDisabled;
        }
        let Outgoing { event, action, idempotency_key, .. } = outgoing.clone();
        world.deliveries.push(Delivery { event: event.to_owned(), action, idempotency_key, status, sent: outgoing });
    }
}
