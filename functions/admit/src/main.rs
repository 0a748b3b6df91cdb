//! Cold start of `admit`.

use admit::AdmitState;
use lambda_http::{Error, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    adapters::telemetry::init();
    let state = adapters::config::AdmitConfig::from_environment()
        .and_then(AdmitState::new)
        .inspect_err(|error| tracing::error!(event = "start_refused", why = %error))?;
    let state = &state;
    lambda_http::run(service_fn(async move |request| admit::handle(state, request).await)).await
}
