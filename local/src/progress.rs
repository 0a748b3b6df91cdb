//! What is going on, line by line, each with the seconds since the start.

use std::sync::OnceLock;
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Prints one step.
pub fn say(text: impl AsRef<str>) {
    let elapsed = started().elapsed().as_secs_f32();
    for (number, line) in text.as_ref().lines().enumerate() {
        match number {
            0 => println!("{elapsed:6.1} s  {line}"),
            _ => println!("          {line}"),
        }
    }
}

/// Prints the heading of a scene.
pub fn heading(text: &str) {
    started();
    println!("\n── {text}");
}

/// The first line of the run.
fn started() -> &'static Instant {
    STARTED.get_or_init(Instant::now)
}
