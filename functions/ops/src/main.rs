//! Cold start of `ops`.

use adapters::config::RunnerConfig;
use adapters::runner::runner;
use adapters::{deadline, telemetry};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let runner = RunnerConfig::from_environment().map_err(|why| why.to_string()).and_then(|config| runner(&config));
    let runner = runner.inspect_err(|why| tracing::error!(event = "start_refused", why))?;
    let runner = &runner;
    let serve =
        async |event: LambdaEvent<serde_json::Value>| ops::handle(runner, event.payload, deadline::stop_at(event.context.deadline)).await;
    lambda_runtime::run(service_fn(serve)).await
}
