//! A stretch of network between a store and its server that can lose the answer of a COMMIT.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Where the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// COMMIT does not arrive: the server rolls back.
    BeforeServer,
    /// COMMIT is carried out, and its answer does not arrive.
    AfterServer,
}

/// Forwards connections to one server and cuts them as told.
pub struct Proxy {
    pub port: u16,
    cut: Arc<(Cut, AtomicU32)>,
}

const COM_QUERY_COMMIT: &[u8] = b"\x03COMMIT";
/// Length (3 bytes) and sequence number in front of each packet.
const HEADER: usize = 4;

impl Proxy {
    /// Cuts the connection at each of the next `times` COMMITs.
    pub async fn start(server: String, cut: Cut, times: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let cut = Arc::new((cut, AtomicU32::new(times)));
        let plan = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, plan) = (server.clone(), plan.clone());
                // A cut or closed connection ends its task; the store sees it as the network it is.
                tokio::spawn(async move { carry(client, &server, &plan).await });
            }
        });
        Self { port, cut }
    }

    /// COMMITs still to be lost.
    pub fn left(&self) -> u32 {
        self.cut.1.load(Ordering::SeqCst)
    }
}

async fn carry(client: TcpStream, server: &str, plan: &(Cut, AtomicU32)) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // The answer of a COMMIT to be lost must not slip through, so both directions are carried in turn.
    let mut answer = vec![0; 64 * 1024];
    let mut ask = Packets::default();
    loop {
        tokio::select! {
            read = from_server.read(&mut answer) => match read? {
                0 => return Ok(()),
                n => to_client.write_all(&answer[..n]).await?,
            },
            packet = ask.next(&mut from_client) => {
                let packet = packet?;
                if packet[HEADER..] == *COM_QUERY_COMMIT && take_one(&plan.1) {
                    return lose(plan.0, &packet, &mut to_server, &mut from_server).await;
                }
                to_server.write_all(&packet).await?;
            }
        }
    }
}

async fn lose(cut: Cut, commit: &[u8], to_server: &mut OwnedWriteHalf, from_server: &mut OwnedReadHalf) -> io::Result<()> {
    if cut == Cut::AfterServer {
        to_server.write_all(commit).await?;
        // The first byte of the answer: the server has committed.
        from_server.read_u8().await?;
    }
    Ok(())
}

fn take_one(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Splits a byte stream at packet boundaries; may be dropped while it waits and asked again.
#[derive(Default)]
struct Packets {
    buffer: Vec<u8>,
}

impl Packets {
    async fn next(&mut self, from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
        loop {
            if let Some(&[a, b, c, _]) = self.buffer.first_chunk::<HEADER>() {
                let whole = HEADER + usize::from(a) + (usize::from(b) << 8) + (usize::from(c) << 16);
                if self.buffer.len() >= whole {
                    let rest = self.buffer.split_off(whole);
                    return Ok(std::mem::replace(&mut self.buffer, rest));
                }
            }
            if from.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
