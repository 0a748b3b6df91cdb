//! Connections that can be cut from inside: the only honest way to lose an answer is to send none.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// The connection a request came by.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<AtomicBool>);

impl Connection {
    /// Nothing more is written; the client sees its connection end without an answer.
    pub fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(crate) struct CuttableListener(pub TcpListener);

pub(crate) struct CuttableStream {
    stream: TcpStream,
    cut: Arc<AtomicBool>,
}

/// Pause after a failed accept (too many open files): a busy loop would not make it better.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok((stream, address)) => {
                    // Header and body are two writes: without this each answer waits 40 ms for a delayed ACK.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    return (CuttableStream { stream, cut: Arc::default() }, address);
                }
                Err(error) => {
                    tracing::warn!(%error, "the stand-in cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        Self(Arc::clone(&stream.io().cut))
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.cut.load(Ordering::SeqCst) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
