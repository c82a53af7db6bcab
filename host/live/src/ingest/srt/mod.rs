//! The SRT port: one socket reads for all callers, answers handshakes without state until a cookie comes back, and
//! leads the datagrams of each accepted caller to its task ([`caller`]).

mod caller;
mod port;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use satcast_core::secret::fill_random;
use satcast_media::srt::{Conclusion, Cookies, Reason, Request, destination};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admit::Admission;
use super::conn::Subject;
use super::connections::{Acceptor, ConnectionLimiter, canonical};
use super::threads::{Threads, report};
use super::udp::{DATAGRAM_BYTES, read_round};
use caller::Caller;
use port::Port;

/// The port, with what decides about callers before they have a task.
pub(super) struct Callers<A> {
    port: Arc<Port<A>>,
    limiter: Arc<ConnectionLimiter>,
    threads: Arc<Threads>,
    drained: CancellationToken,
    cookies: Cookies,
}

impl<A: Admission> Callers<A> {
    /// The port behind the opened `socket`. Once `drained` is cancelled, callers are refused.
    pub(super) fn new(
        socket: std::net::UdpSocket,
        acceptor: &Acceptor<A>,
        drained: CancellationToken,
    ) -> Self {
        let mut secret = [0; 16];
        fill_random(&mut secret);
        Self {
            port: Port::new(Arc::clone(&acceptor.shared), acceptor.stopped.clone(), socket),
            limiter: Arc::clone(&acceptor.limiter),
            threads: Arc::clone(&acceptor.threads),
            drained,
            cookies: Cookies::new(&secret),
        }
    }

    /// Serves until the service stops, and all callers have ended.
    pub(super) async fn serve(self) {
        let mut tasks = JoinSet::new();
        if let Err(failure) = self.read(&mut tasks).await {
            tracing::error!(%failure, "the SRT port failed; encoders cannot connect by SRT until the next start");
            self.port.stopped.cancelled().await;
        }
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    }

    async fn read(&self, tasks: &mut JoinSet<()>) -> io::Result<()> {
        let socket = UdpSocket::from_std(self.port.socket().try_clone()?)?;
        let mut block = [0; DATAGRAM_BYTES];
        loop {
            tokio::select! {
                biased;
                () = self.port.stopped.cancelled() => return Ok(()),
                Some(ended) = tasks.join_next() => report(ended),
                ready = socket.readable() => ready?,
            }
            read_round(&socket, &mut block, |datagram, from| self.take(datagram, from, tasks)).await;
        }
    }

    fn take(&self, datagram: &[u8], from: SocketAddr, tasks: &mut JoinSet<()>) {
        match destination(datagram) {
            None => {}
            Some(0) => match Request::parse(datagram) {
                Some(Request::Induction(hello)) => {
                    let cookie = self.cookies.make(from, self.port.now());
                    self.port.send(&hello.answer(cookie, from.ip()), from);
                }
                Some(Request::Conclusion(asked)) => self.concluded(*asked, from, tasks),
                None => {}
            },
            Some(socket) => self.port.lead(datagram, socket, from),
        }
    }

    /// A caller says what it wants. From here on it has slots, unless it is refused at once.
    fn concluded(&self, asked: Conclusion, from: SocketAddr, tasks: &mut JoinSet<()>) {
        let (port, id) = (&self.port, (from, asked.caller));
        if !self.cookies.is_valid(asked.cookie, from, port.now()) || port.is_known(id) {
            return;
        }
        let refuse = |reason: Reason, text: &str| {
            port.shared.warn_of("SRT", canonical(from), Subject::Unknown, &format!("refused: {text}"));
            port.send(&asked.refuse(reason, from.ip()), from);
        };
        if self.drained.is_cancelled() {
            return port.send(&asked.refuse(Reason::Down, from.ip()), from);
        }
        if let Some(reason) = asked.fault() {
            return refuse(reason, fault_text(reason));
        }
        let (all, stranger) = match port.shared.take_slots(&self.limiter, canonical(from)) {
            Ok(slots) => slots,
            Err(full) => return refuse(Reason::Overload, full),
        };
        let (thread, slot) = self.threads.slot();
        let caller = Caller::new(port.register(id), asked, port.now(), slot);
        tasks.spawn_on(
            async move {
                let _all = all;
                caller.serve(stranger).await;
            },
            &thread,
        );
    }
}

fn fault_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Version => "the caller is older than SRT 1.3",
        Reason::Congestion => "the caller asks for file or message mode; only live mode is served",
        Reason::Filter => "the caller asks for a packet filter (FEC), which is not served",
        Reason::Group => "the caller asks for a bonded group, which is not served",
        Reason::Crypto => "the caller encrypts with another cipher than AES in counter mode",
        _ => "the handshake is malformed",
    }
}
