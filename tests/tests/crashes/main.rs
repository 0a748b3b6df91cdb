//! Functions that die, freeze or race: what is left must be put right by the others.

mod close_races;
mod fencing;
mod killed;
mod webhook_storm;
