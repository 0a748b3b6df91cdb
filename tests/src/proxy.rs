//! A stretch of network between a store and its server, in which a unit meets the harm that is planned for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Where the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// What was sent does not arrive: the server rolls back.
    BeforeServer,
    /// What was sent is carried out, and its answer does not arrive.
    AfterServer,
}

/// When a unit meets its harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// At the client's first packet, which says what it wants.
    Handshake,
    /// At the first statement to be prepared.
    Prepare,
    /// At the n-th statement of a transaction, counted from 1.
    Statement(u32),
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    Cut(Cut),
    /// What was sent does not arrive, and the connection ends with a reset: a proxy that fails over takes no leave.
    Reset,
    /// The server answers with this error, and with all that it does to a transaction: what undoes a transaction
    /// (1213 and its kin) really rolls it back, and the session goes on in autocommit; after any other it stays open.
    Refused(u16),
    /// The client is made to want the number of matched rows where it would be told that of changed ones.
    FoundRows,
}

impl Harm {
    fn undoes(self) -> bool {
        matches!(self, Self::Refused(1213 | 1180 | 3101))
    }
}

#[derive(Debug)]
struct Plan {
    moment: Moment,
    harm: Harm,
    left: AtomicU32,
}

/// Forwards connections to one server and harms them as told.
pub struct Proxy {
    pub port: u16,
    plan: Arc<Plan>,
}

/// Length (3 bytes) and sequence number in front of each packet.
const HEADER: usize = 4;
const COM_QUERY_COMMIT: &[u8] = b"\x03COMMIT";
const COM_QUERY_BEGIN: &[u8] = b"\x03START TRANSACTION";
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
/// In the lowest byte of what the client says that it can.
const CLIENT_FOUND_ROWS: u8 = 2;
const ROLLBACK: &[u8] = b"\x09\0\0\0\x03ROLLBACK";

impl Proxy {
    /// Harms the next `times` transactions that come to this moment.
    pub async fn start(server: String, moment: Moment, harm: Harm, times: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let plan = Arc::new(Plan { moment, harm, left: AtomicU32::new(times) });
        let each = plan.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, plan) = (server.clone(), each.clone());
                // A cut or closed connection ends its task; the store sees it as the network it is.
                tokio::spawn(async move { carry(client, &server, &plan).await });
            }
        });
        Self { port, plan }
    }

    /// Harms still to be done.
    pub fn left(&self) -> u32 {
        self.plan.left.load(Ordering::SeqCst)
    }
}

async fn carry(client: TcpStream, server: &str, plan: &Plan) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // The answer of a COMMIT to be lost must not slip through, so both directions are carried in turn.
    let mut answer = vec![0; 64 * 1024];
    let mut ask = Packets::default();
    let mut statements = 0;
    let mut is_new = true;
    loop {
        tokio::select! {
            read = from_server.read(&mut answer) => match read? {
                0 => return Ok(()),
                n => to_client.write_all(&answer[..n]).await?,
            },
            packet = ask.next(&mut from_client) => {
                let mut packet = packet?;
                let is_first = std::mem::replace(&mut is_new, false);
                let is_here = match &packet[HEADER..] {
                    _ if is_first => plan.moment == Moment::Handshake,
                    COM_QUERY_BEGIN => {
                        statements = 0;
                        false
                    }
                    COM_QUERY_COMMIT => plan.moment == Moment::Commit,
                    [COM_STMT_PREPARE, ..] => plan.moment == Moment::Prepare,
                    [COM_STMT_EXECUTE, ..] => {
                        statements += 1;
                        plan.moment == Moment::Statement(statements)
                    }
                    _ => false,
                };
                if !(is_here && take_one(&plan.left)) {
                    to_server.write_all(&packet).await?;
                    continue;
                }
                match plan.harm {
                    Harm::Reset => return to_client.as_ref().set_zero_linger(),
                    Harm::Cut(cut) => return lose(cut, &packet, &mut to_server, &mut from_server).await,
                    Harm::FoundRows => {
                        packet[HEADER] |= CLIENT_FOUND_ROWS;
                        to_server.write_all(&packet).await?;
                    }
                    Harm::Refused(code) => {
                        if plan.harm.undoes() {
                            // Nothing else is under way, so the next packet is the answer to this.
                            to_server.write_all(ROLLBACK).await?;
                            Packets::default().next(&mut from_server).await?;
                        }
                        to_client.write_all(&refusal(code, packet[HEADER - 1])).await?;
                    }
                }
            }
        }
    }
}

/// The server's error packet in answer to a packet of this number.
fn refusal(code: u16, asked: u8) -> Vec<u8> {
    let state = if code == 1213 { "40001" } else { "HY000" };
    let text = format!("#{state}an error of a test");
    let mut packet = vec![text.len() as u8 + 3, 0, 0, asked.wrapping_add(1), 0xff];
    packet.extend(code.to_le_bytes());
    packet.extend(text.as_bytes());
    packet
}

async fn lose(cut: Cut, asked: &[u8], to_server: &mut OwnedWriteHalf, from_server: &mut OwnedReadHalf) -> io::Result<()> {
    if cut == Cut::AfterServer {
        to_server.write_all(asked).await?;
        // The first byte of the answer: the server has done it.
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
