//! A MySQL or MariaDB server of our own: fetched if the machine has none, started empty, gone with us.

mod datadir;
pub(crate) mod debian;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use tokio::time::{Instant, sleep, timeout};

use crate::places::{RunFolder, free_port};
use crate::supervised::{LOG, Supervised};
use program::Program;

pub use program::Brand;

/// From start to first answer; a cold disk on a loaded machine needs some of it.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Another program may take the port between our choice and the server's bind.
const PORT_TRIES: usize = 3;
/// The database that [`Server::url`] names.
const DATABASE: &str = "muster";

/// A running server. It ends when this is dropped or its process dies, even by `kill -9`.
#[derive(Debug)]
pub struct Server {
    /// `mysql://root@127.0.0.1:PORT/muster`; the database exists and is empty.
    pub url: String,
    /// `9.7.4` and the like.
    pub version: String,
    server: Supervised,
    // After the server: its folder goes last.
    _folder: RunFolder,
}

impl Server {
    /// Stops the server and removes its files.
    ///
    /// # Errors
    /// If the server could not be waited for.
    pub async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

/// Starts a fresh server on a free port of 127.0.0.1, fetching it first if this machine has none.
///
/// # Errors
/// If no server can be found or fetched, or if it does not start: the message ends with its log.
pub async fn start(brand: Brand) -> Result<Server> {
    let program =
        tokio::task::spawn_blocking(move || program::find_or_fetch(brand)).await.context("looking for a server was interrupted")??;
    for _ in 0..PORT_TRIES {
        if let Some(server) = start_on_free_port(&program).await? {
            return Ok(server);
        }
    }
    bail!("other programs took the port of {brand} {PORT_TRIES} times in a row: try again on a quieter machine")
}

/// `None` if another program took the port first.
async fn start_on_free_port(program: &Program) -> Result<Option<Server>> {
    let folder = RunFolder::create("mysql")?;
    let datadir = folder.path().join("data");
    datadir::fill(program, &datadir)?;
    let port = free_port().await?;
    let socket_folder = socket_folder(port)?;
    let mut command = program.command(&datadir);
    command
        .arg(format!("--port={port}"))
        .arg(format!("--socket={}", socket_folder.join("s").display()))
        .arg(format!("--pid-file={}", folder.path().join("pid").display()))
        .arg(format!("--log-error={}", folder.path().join(LOG).display()))
        .args(OPTIONS);
    if program.brand == Brand::MySql {
        command.arg("--mysqlx=OFF");
    }
    let mut server = Supervised::start(&command, folder.path(), &socket_folder)?;
    let until = Instant::now() + START_LIMIT;
    while let Err(silence) = answers(port).await {
        if let Some(status) = server.exited()? {
            if server.log().contains("Bind on TCP/IP port") {
                return Ok(None);
            }
            bail!("{} ended while starting ({status}). Its log:\n{}", program.brand, server.log());
        }
        if Instant::now() > until {
            bail!("{} did not answer within {START_LIMIT:?}: {silence:#}. Its log:\n{}", program.brand, server.log());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let url = create_database(port).await?;
    Ok(Some(Server { url, version: program.version.to_string(), server, _folder: folder }))
}

/// Durable across a crash of the server, not of the machine: a test's data need no more. `performance_schema` stays
/// on, because tests look at locks there.
const OPTIONS: [&str; 8] = [
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--max-connections=500",
    "--innodb-buffer-pool-size=256M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-fast-shutdown=2",
    "--loose-innodb-redo-log-capacity=128M",
    "--skip-name-resolve",
];

async fn create_database(port: u16) -> Result<String> {
    let mut connection = Conn::new(root(port)).await.context("the server answered once and then no more")?;
    connection
        .query_drop(format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4"))
        .await
        .context("the first database cannot be created")?;
    connection.disconnect().await.context("the first connection to the server did not close")?;
    Ok(format!("mysql://root@127.0.0.1:{port}/{DATABASE}"))
}

fn root(port: u16) -> Opts {
    OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port).user(Some("root")).prefer_socket(false).into()
}

async fn answers(port: u16) -> Result<()> {
    let connection = timeout(Duration::from_secs(2), Conn::new(root(port))).await.context("a connection takes longer than 2 s")??;
    Ok(connection.disconnect().await?)
}

/// The path of a socket may have 107 bytes at most; a checkout can lie deeper than that, the system's own folder does not.
fn socket_folder(port: u16) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("muster-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    Ok(folder)
}
