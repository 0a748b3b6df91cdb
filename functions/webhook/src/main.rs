//! Cold start of `webhook`.

use lambda_http::{Error, service_fn};
use webhook::WebhookState;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    adapters::telemetry::init();
    let config =
        adapters::config::WebhookConfig::from_environment().inspect_err(|error| tracing::error!(event = "start_refused", why = %error))?;
    let state = &WebhookState::new(config).inspect_err(|why| tracing::error!(event = "start_refused", why))?;
    lambda_http::run(service_fn(async move |request| webhook::handle(state, request).await)).await
}
