//! Every command, with the state in which it has the most to do.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;

use shared::ids::{BatchId, OperationId, Principal};
use shared::state::{FailCause, OperationStatus};
use shared::transactions::admit::Admit;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::begin_fail::BeginFail;
use shared::transactions::close_failed::CloseFailed;
use shared::transactions::fail_as_ordered::FailAsOrdered;
use shared::transactions::reconcile_late_merge::ReconcileLateMerge;
use shared::transactions::record_render::{Expelled, RecordRender};
use shared::transactions::recover::{Recover, RecoverTo};
use shared::transactions::unblock::Unblock;
use shared::transactions::withdraw::WithdrawOutcome;
use shared::{Guarded, Store, StoreError};

use crate::commands::{
    OPERATOR, admit, begin_fail, block, claim, fail, fail_as_ordered, grant, key, principal, record_merge_request, record_render, succeed,
    withdraw,
};
use crate::deadline::within;
use crate::world::World;

/// Two members in a batch, one request that waits, ten seats.
pub struct State {
    pub world: World,
    pub cast: Cast,
}

/// Whom the commands are about. Told as one line, so that another process can play the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cast {
    pub batch: BatchId,
    pub member: OperationId,
    /// Of the member's operation.
    pub version: u64,
    /// Of the batch.
    pub batch_version: u64,
    pub waiting: OperationId,
}

impl Deref for State {
    type Target = Cast;

    fn deref(&self) -> &Cast {
        &self.cast
    }
}

impl Cast {
    pub fn to_line(&self) -> String {
        format!("{} {} {} {} {}", self.batch.0, self.member, self.version, self.batch_version, self.waiting)
    }

    /// # Panics
    /// On anything that [`Self::to_line`] does not make.
    pub fn of_line(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [batch, member, version, batch_version, waiting] = words[..] else { panic!("no cast: {line}") };
        let operation = |id: &str| OperationId::parse(id).expect("an operation");
        let number = |text: &str| text.parse().expect("a number");
        Self {
            batch: BatchId(number(batch)),
            member: operation(member),
            version: number(version),
            batch_version: number(batch_version),
            waiting: operation(waiting),
        }
    }
}

/// A command on its way.
pub type Running = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Every command that may meet another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Admit,
    Claim,
    RecordRender,
    RecordMergeRequest,
    Succeed,
    BeginFail,
    FailRequeueing,
    FailRejecting,
    FailHalving,
    FailAsOrdered,
    Block,
    Unblock,
    WithdrawMember,
    WithdrawWaiting,
    LateMerge,
    Recover,
    CloseFailed,
}

impl Command {
    pub const ALL: [Self; 17] = [
        Self::Admit,
        Self::Claim,
        Self::RecordRender,
        Self::RecordMergeRequest,
        Self::Succeed,
        Self::BeginFail,
        Self::FailRequeueing,
        Self::FailRejecting,
        Self::FailHalving,
        Self::FailAsOrdered,
        Self::Block,
        Self::Unblock,
        Self::WithdrawMember,
        Self::WithdrawWaiting,
        Self::LateMerge,
        Self::Recover,
        Self::CloseFailed,
    ];

    /// Those that another is met by. A `fail` is one command, whatever the batch fails for.
    pub const OTHERS: [Self; 13] = [
        Self::Admit,
        Self::Claim,
        Self::RecordRender,
        Self::RecordMergeRequest,
        Self::Succeed,
        Self::BeginFail,
        Self::FailRequeueing,
        Self::FailAsOrdered,
        Self::Block,
        Self::Unblock,
        Self::WithdrawMember,
        Self::WithdrawWaiting,
        Self::LateMerge,
    ];

    /// The state in which the command has the most to do.
    pub async fn prepare(self) -> State {
        let world = World::new().await.with_target("db", "default", Some(10)).await;
        let member = world.admitted(grant("alice", "db")).await;
        // Only a batch of one convicts.
        if !matches!(self, Self::Recover | Self::CloseFailed) {
            world.admitted(grant("bob", "db")).await;
        }
        let batch = world.claimed("round-1").await;
        let waiting = world.admitted(grant("carol", "db")).await;
        let cause = match self {
            Self::FailRequeueing | Self::LateMerge | Self::Claim => Some(FailCause::Infrastructure),
            Self::FailRejecting => Some(FailCause::Rejected),
            Self::FailHalving | Self::Recover | Self::CloseFailed => Some(FailCause::Content),
            _ => None,
        };
        if let Some(cause) = cause {
            assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
        }
        if matches!(self, Self::LateMerge | Self::Claim | Self::Recover | Self::CloseFailed) {
            assert_eq!(world.run(&fail(batch, "earlier")).await, SettleOutcome::Settled);
        }
        match self {
            Self::Unblock => assert_eq!(world.run(&block(batch)).await, SettleOutcome::Settled),
            Self::CloseFailed => {
                let noted = WithdrawOutcome::Noted { status: OperationStatus::Failed };
                assert_eq!(world.run(&withdraw(&member)).await, noted);
            }
            _ => {}
        }
        let version = world.scalar("SELECT version FROM operation WHERE operation_id = ?", (&member,)).await;
        let batch_version = world.scalar("SELECT version FROM merge_batch WHERE id = ?", (batch,)).await;
        State { world, cast: Cast { batch, member, version, batch_version, waiting } }
    }

    /// # Panics
    /// If no command is called so.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|one| format!("{one:?}") == name).unwrap_or_else(|| panic!("no command is called {name}"))
    }

    pub fn unit_name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Claim => "claim",
            Self::RecordRender => "record_render",
            Self::RecordMergeRequest => "record_merge_request",
            Self::Succeed => "succeed",
            Self::BeginFail => "begin_fail",
            Self::FailRequeueing | Self::FailRejecting | Self::FailHalving => "fail",
            Self::FailAsOrdered => "fail_as_ordered",
            Self::Block => "block",
            Self::Unblock => "unblock",
            Self::WithdrawMember | Self::WithdrawWaiting => "withdraw",
            Self::LateMerge => "reconcile_late_merge",
            Self::Recover => "recover",
            Self::CloseFailed => "close_failed",
        }
    }

    /// The command as it runs against this state. From the same runner it is the same command again.
    pub fn run(self, store: Store, cast: &Cast, by: &str) -> Running {
        let batch = cast.batch;
        match self {
            Self::Admit => spawned(store, Admit { operation: application_of(by), key: key(by), ..admit(grant("dave", "db")) }),
            Self::Claim => spawned(store, claim(by)),
            Self::RecordRender => {
                let expelled = Expelled { operation: cast.member.clone(), code: "base_mismatch", reason: "changed".to_owned() };
                spawned(store, RecordRender { by: by.to_owned(), expelled: vec![expelled], ..record_render(batch) })
            }
            Self::RecordMergeRequest => spawned(store, record_merge_request(batch, 7)),
            Self::Succeed => spawned(store, succeed(batch, by)),
            Self::BeginFail => spawned(store, BeginFail { by: by.to_owned(), ..begin_fail(batch, FailCause::Infrastructure) }),
            Self::FailRequeueing | Self::FailRejecting | Self::FailHalving => spawned(store, fail(batch, by)),
            Self::FailAsOrdered => {
                let unit = fail_as_ordered(batch, cast.batch_version, FailCause::Rejected);
                spawned(store, FailAsOrdered { by: by.to_owned(), ..unit })
            }
            Self::Block => spawned(store, block(batch)),
            Self::Unblock => spawned(store, Unblock { batch }),
            Self::WithdrawMember => spawned(store, withdraw(&cast.member)),
            Self::WithdrawWaiting => spawned(store, withdraw(&cast.waiting)),
            Self::LateMerge => spawned(store, ReconcileLateMerge { batch, by: by.to_owned(), merge_sha: "b".repeat(40) }),
            Self::Recover => {
                let (operation, version) = (cast.member.clone(), cast.version);
                spawned(store, Recover { operation, version, to: RecoverTo::Waiting, actor: principal(OPERATOR) })
            }
            Self::CloseFailed => spawned(store, CloseFailed { operation: cast.member.clone(), actor: Principal::muster() }),
        }
    }
}

/// The same for the same runner.
fn application_of(by: &str) -> OperationId {
    let number = by.bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % (1 << 48));
    OperationId::parse(format!("01890000-0000-7000-8000-{number:012x}")).expect("an operation")
}

fn spawned<G: Guarded + Send + 'static>(store: Store, unit: G) -> Running
where
    G::Outcome: 'static,
{
    let running = tokio::spawn(async move { store.run(&unit).await.map(drop) });
    Box::pin(async move { within(G::NAME, running).await.expect("no panic") })
}
