//! Where a call to GitLab stands, for tests that end or freeze the process there.

/// A moment of one HTTP call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing was sent yet.
    Before,
    /// It was answered or lost; nothing has been made of that yet.
    After,
}

/// Watches the calls one by one. Tests end the process at a call of their choice.
pub trait CallProbe: Send + Sync {
    /// `call` is what the call does, in words, such as `make the commit`.
    fn reached(&self, call: &'static str, moment: Moment);
}
