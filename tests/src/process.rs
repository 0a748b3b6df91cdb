//! Another process that runs one command and stands at one point of it, to be killed or frozen there.
//!
//! It is this very test binary, started again with one ignored test that reads its part from the environment: the
//! commands, the store and the probes are the same, and nothing further is built.

use std::process::Stdio;

use shared::{Store, StoreOptions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command as Program};

use crate::course::{Cast, Command};
use crate::deadline::within;
use crate::probes::{At, Pause};
use crate::world::be_patient;

/// What the child is to do, as one line.
const PART: &str = "MUSTER_TEST_PART";
const STANDING: &str = "the child stands";
const ENDED: &str = "the child ended: ";

/// One command, from where to where.
#[derive(Debug, Clone)]
pub struct Part {
    pub url: String,
    pub command: Command,
    pub cast: Cast,
    pub at: At,
    /// Seconds that the server waits for a silent session.
    pub wait_timeout_s: u32,
}

impl Part {
    fn to_line(&self) -> String {
        let at = match self.at {
            At::Statement(n) => n.to_string(),
            At::BeforeCommit => "commit".to_owned(),
            At::AfterCommit => "answer".to_owned(),
            At::Named(name) => panic!("a child is not told to stand at {name}"),
        };
        format!("{}|{:?}|{}|{at}|{}", self.url, self.command, self.cast.to_line(), self.wait_timeout_s)
    }

    fn of_line(line: &str) -> Self {
        let words: Vec<&str> = line.split('|').collect();
        let [url, command, cast, at, wait] = words[..] else { panic!("no part: {line}") };
        let at = match at {
            "commit" => At::BeforeCommit,
            "answer" => At::AfterCommit,
            n => At::Statement(n.parse().expect("a number")),
        };
        Self {
            url: url.to_owned(),
            command: Command::named(command),
            cast: Cast::of_line(cast),
            at,
            wait_timeout_s: wait.parse().expect("a number"),
        }
    }

    /// In the child: does what the environment says, if it says anything.
    pub async fn play() {
        let Some(line) = local::environment::variable(PART) else { return };
        let part = Self::of_line(&line);
        let pause = Pause::new(part.command.unit_name(), part.at);
        let mut options = StoreOptions { probe: Some(pause.clone()), ..StoreOptions::new(&part.url) };
        be_patient(&mut options);
        options.session.push(format!("wait_timeout = {}", part.wait_timeout_s));
        let store = Store::new(options).expect("a well-formed address");
        let running = part.command.run(store, &part.cast, "runner");
        let told = async {
            pause.reached().await;
            println!("{STANDING}");
            // Until it is killed, or told to go on.
            tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.expect("no panic").expect("a pipe");
            pause.release();
        };
        let (outcome, ()) = tokio::join!(running, told);
        println!("{ENDED}{}", outcome.map_or_else(|error| error.to_string(), |()| "well".to_owned()));
    }
}

/// A child at work.
pub struct Playing {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Playing {
    /// Starts the child; `test` is the full name of the ignored test that calls [`Part::play`].
    pub async fn start(test: &str, part: &Part) -> Self {
        let own = std::env::current_exe().expect("a test knows its own file");
        let mut child = Program::new(own)
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(PART, part.to_line())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a test binary can be started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let orders = child.stdin.take().expect("a pipe");
        Self { child, orders, lines }
    }

    /// Returns once the child stands at its point.
    pub async fn stands(&mut self) {
        self.line(STANDING).await;
    }

    /// Lets a child that stands go on.
    pub async fn go_on(&mut self) {
        self.orders.write_all(b"\n").await.expect("a child that stands reads its orders");
    }

    /// What the child says at its end: `well`, or why not.
    pub async fn ends(&mut self) -> String {
        self.line(ENDED).await
    }

    async fn line(&mut self, wanted: &str) -> String {
        within(&format!("a child that says {wanted:?}"), async {
            while let Some(line) = self.lines.next_line().await.expect("a pipe can be read") {
                if let Some((_, rest)) = line.split_once(wanted) {
                    return rest.to_owned();
                }
            }
            panic!("the child ended without saying {wanted:?}");
        })
        .await
    }

    /// SIGKILL: no destructor runs, nobody rolls back, the kernel closes what was open.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// SIGSTOP or SIGCONT; the standard library can only kill.
    pub async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("a child that runs has a number").to_string();
        let told = Program::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "sh", signal, &pid]).status().await;
        assert!(told.expect("a shell can be started").success(), "{signal} did not reach the child");
    }
}
