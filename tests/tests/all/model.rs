//! Histories of many steps, with time that passes, answers that are lost and commands that are given twice or die, against
//! a reference that knows nothing of databases. `make soak` runs them for as long as it is told.

mod reference;
mod system;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use reference::{Reference, SUBJECTS, Step};
use shared::state::FailCause;
use system::{Model, STEPS};

const CASES: u32 = 6;
const LONGEST: usize = 40;
/// Seconds that `make soak` runs unless SOAK_S says otherwise.
const SOAK_S: u64 = 300;

/// What befalls the command on its way. Afterwards its giver knows how it came out, and it was done once or not at all.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    Clean,
    /// The connection breaks at COMMIT, before or after the server has it.
    LostCommit {
        is_done: bool,
    },
    /// It is done, the answer is lost, and it is given again: a redelivery.
    GivenTwice,
    /// Its giver dies before this statement, or its COMMIT, and another gives it again.
    DiesAt(u32),
    /// Its giver dies before COMMIT, and nobody gives it again.
    Abandoned,
}

#[derive(Debug, Clone)]
pub struct Told {
    pub step: Step,
    pub fate: Fate,
}

impl ReferenceStateMachine for Reference {
    type State = Self;
    type Transition = Told;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Told> {
        let fates = prop_oneof![
            4 => Just(Fate::Clean),
            1 => any::<bool>().prop_map(|is_done| Fate::LostCommit { is_done }),
            1 => Just(Fate::GivenTwice),
            1 => (1..14_u32).prop_map(Fate::DiesAt),
            1 => Just(Fate::Abandoned),
        ];
        (steps(state), fates).prop_map(|(step, fate)| Told { step, fate }).boxed()
    }

    fn preconditions(state: &Self, told: &Told) -> bool {
        state.knows(&told.step)
    }

    fn apply(mut state: Self, told: &Told) -> Self {
        // Time passes whoever dies.
        if !matches!(told.fate, Fate::Abandoned) || matches!(told.step, Step::Tick(_)) {
            Self::apply(&mut state, &told.step);
        }
        state
    }
}

/// Steps about what is there, the latest of it more often than the rest.
fn steps(state: &Reference) -> BoxedStrategy<Step> {
    let mut all: Vec<(u32, BoxedStrategy<Step>)> = vec![
        (4, (0..SUBJECTS).prop_map(Step::Grant).boxed()),
        (2, (0..SUBJECTS).prop_map(Step::Revoke).boxed()),
        (4, Just(Step::Claim).boxed()),
        (4, prop_oneof![3 => Just(1), 1 => Just(700)].prop_map(Step::Tick).boxed()),
    ];
    if !state.requests.is_empty() {
        let one = 0..state.requests.len();
        all.push((2, one.clone().prop_map(Step::Withdraw).boxed()));
        all.push((1, one.clone().prop_map(Step::Expire).boxed()));
        all.push((2, one.prop_map(Step::Recover).boxed()));
    }
    if let Some(latest) = state.batches.len().checked_sub(1) {
        let one = || prop_oneof![4 => Just(latest), 1 => 0..=latest];
        let cause = prop_oneof![Just(FailCause::Infrastructure), Just(FailCause::Rejected), Just(FailCause::Content)];
        all.push((3, one().prop_map(Step::Succeed).boxed()));
        all.push((4, (one(), cause).prop_map(|(n, cause)| Step::BeginFail(n, cause)).boxed()));
        all.push((4, one().prop_map(Step::Fail).boxed()));
        all.push((1, one().prop_map(Step::Block).boxed()));
        all.push((1, one().prop_map(Step::Unblock).boxed()));
        all.push((2, one().prop_map(Step::LateMerge).boxed()));
    }
    Union::new_weighted(all).boxed()
}

fn config(cases: u32) -> ProptestConfig {
    // What is found is printed, shrunk; nothing is written into the checkout.
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() }
}

fn histories(runner: &mut TestRunner) {
    let strategy = <Reference as ReferenceStateMachine>::sequential_strategy(5..LONGEST);
    let config = runner.config().clone();
    let told = runner.run(&strategy, |(state, steps, seen)| {
        Model::test_sequential(config.clone(), state, steps, seen);
        Ok(())
    });
    if let Err(why) = told {
        panic!("a history that the reference does not tell: {why}");
    }
}

fn count() -> u64 {
    let steps = STEPS.lock().expect("no holder panics");
    for (name, count) in steps.iter() {
        println!("{count:>8}  {name}");
    }
    steps.values().sum()
}

#[test]
fn histories_end_as_the_reference_tells() {
    // The same ones each time.
    let mut runner = TestRunner::new_with_rng(config(CASES), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    histories(&mut runner);
    println!("counted: model: {CASES} histories, {} steps", count());
}

#[test]
#[ignore = "as long as SOAK_S says: `make soak`"]
fn soak() {
    let seconds = local::environment::variable("SOAK_S").map_or(SOAK_S, |text| text.parse().expect("SOAK_S is a number of seconds"));
    let (started, mut cases) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        histories(&mut TestRunner::new(config(CASES)));
        cases += CASES;
    }
    let verdict = format!("soak: {cases} histories, {} steps in {} s, no difference", count(), started.elapsed().as_secs());
    println!("counted: {verdict}");
    let path = local::places::muster().expect("a folder of our own").join("soak.txt");
    std::fs::write(path, verdict + "\n").expect("a line can be written");
}
