//! The states, with their numbers in the database and their names on the wire.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $(#[serde(rename = $text)] $variant = $code),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number stored in the database.
            pub const fn code(self) -> i64 {
                self as i64
            }

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn from_code(code: i64) -> Result<Self, StoreError> {
                Self::ALL.iter().copied().find(|state| state.code() == code).ok_or_else(|| {
                    StoreError::corrupt(format!("{} {code} is not a known state", stringify!($name)))
                })
            }

            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|state| state.name() == name)
            }
        }

        impl From<$name> for mysql_async::Value {
            fn from(state: $name) -> Self {
                Self::Int(state.code())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

states!(
    /// A request's state. FAILED waits for recovery; MERGED, REJECTED, WITHDRAWN and CLOSED are its ends.
    OperationStatus {
        Waiting = 1 "WAITING",
        InBatch = 2 "IN_BATCH",
        Merged = 3 "MERGED",
        Rejected = 4 "REJECTED",
        Failed = 5 "FAILED",
        Withdrawn = 6 "WITHDRAWN",
        Closed = 7 "CLOSED",
    }
);

impl OperationStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Rejected | Self::Withdrawn | Self::Closed)
    }
}

states!(
    /// A relationship's state.
    BindingStatus {
        Applying = 1 "APPLYING",
        Active = 2 "ACTIVE",
        Revoking = 3 "REVOKING",
        Rejected = 4 "REJECTED",
        Failed = 5 "FAILED",
        Closed = 6 "CLOSED",
    }
);

impl BindingStatus {
    /// Only these may be reset in place by a new grant.
    pub const fn is_reappliable(self) -> bool {
        matches!(self, Self::Rejected | Self::Closed)
    }

    /// Does a binding in this state hold a seat of its target?
    pub const fn holds_seat(self) -> bool {
        matches!(self, Self::Applying | Self::Active | Self::Revoking | Self::Failed)
    }
}

states!(
    /// A batch's state. RUNNING and BLOCKED hold the slot.
    BatchStatus {
        Running = 1 "RUNNING",
        Succeeded = 2 "SUCCEEDED",
        Failed = 3 "FAILED",
        Blocked = 4 "BLOCKED",
    }
);

impl BatchStatus {
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Blocked)
    }
}

states!(
    /// What a request asks for.
    Action {
        Grant = 1 "grant",
        Revoke = 2 "revoke",
    }
);

states!(
    /// What started a round.
    Trigger {
        Scheduled = 1 "scheduled",
        Manual = 2 "manual",
        FollowUp = 3 "follow_up",
    }
);

states!(
    /// Why a batch fails: decides what becomes of its members.
    FailCause {
        Content = 1 "content",
        Infrastructure = 2 "infrastructure",
        Rejected = 3 "rejected",
    }
);

states!(
    /// How one claim of a request ended.
    MemberOutcome {
        Merged = 1 "merged",
        Requeued = 2 "requeued",
        Rejected = 3 "rejected",
        Failed = 4 "failed",
        Withdrawn = 5 "withdrawn",
        Expelled = 6 "expelled",
    }
);
