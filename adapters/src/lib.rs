//! Muster's hands: the forge, the queues, the environment and the one relay that performs effects.
//!
//! Nothing here changes state directly. What a forge or a queue answers becomes the input of the
//! next guarded transaction in `shared`.

pub mod config;
pub mod deadline;
pub mod forge;
pub mod outbound;
pub mod problem;
pub mod queue;
pub mod relay;
pub mod runner;
pub mod settlement;
pub mod telemetry;
