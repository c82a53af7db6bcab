//! The load by SRT: a caller for each stream, and one port that takes all destinations.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use satcast_media::Packet;
use satcast_media::srt::limits::SEND_BYTES;
use satcast_media::srt::{
    Accepted, Call, Called, Caller, Connection, Cookies, Delivery, Request, Seed, Sender, destination,
};
use satcast_media::ts::{Demuxer, Muxer};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::publishers::{Ingest, Line};
use super::sinks::Shared;

/// Latency that every side asks for, in milliseconds: the default of libsrt.
pub const LATENCY_MS: u16 = 120;
/// Bytes of the largest datagram.
const DATAGRAM_BYTES: usize = 2_048;
/// Longest wait of the receiving thread for a datagram: frames are late by at most this time.
const WAIT: Duration = Duration::from_millis(1);

/// A connection by SRT.
pub(super) struct SrtLine {
    socket: UdpSocket,
    clock: Instant,
    state: State,
    muxer: Muxer,
    bytes: Vec<u8>,
}

enum State {
    Calling(Box<Caller>),
    Sending(Box<Sender>),
}

impl Line for SrtLine {
    fn connect(ingest: &Ingest) -> Result<Self, String> {
        let Ingest { address, name, .. } = ingest;
        let failed = |error: std::io::Error| format!("cannot connect to {address}: {error}");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.connect(address).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
        let call = Call { stream_id: name.clone(), latency_ms: LATENCY_MS, secret: None };
        let own = socket.local_addr().map_err(failed)?.port();
        let seed = Seed { socket: u32::from(own) << 8, sequence: 1, ..Seed::default() };
        let caller = Caller::new(call, seed, address.ip(), Duration::ZERO).ok_or("no call")?;
        let state = State::Calling(Box::new(caller));
        Ok(Self { socket, clock: Instant::now(), state, muxer: Muxer::default(), bytes: Vec::new() })
    }

    fn listen(&mut self) -> Result<bool, String> {
        let mut block = [0; DATAGRAM_BYTES];
        loop {
            let datagram = match self.socket.recv(&mut block) {
                Ok(count) => &block[..count],
                // Nobody listened when the last datagram came: it is sent again.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("cannot read from its server: {error}")),
            };
            let now = self.clock.elapsed();
            match &mut self.state {
                State::Sending(sender) => sender.input(datagram, now),
                State::Calling(caller) => match caller.input(datagram, now) {
                    Some(Called::Accepted(sender)) => self.state = State::Sending(sender),
                    Some(Called::Refused(code)) => return Err(format!("its server refused it: {code}")),
                    None => {}
                },
            }
        }
        Ok(matches!(self.state, State::Sending(_)))
    }

    fn send(&mut self, packet: &Packet) -> Result<(), String> {
        let Self { clock, state: State::Sending(sender), muxer, bytes, .. } = self else { return Ok(()) };
        bytes.clear();
        muxer.push(packet, bytes).map_err(|error| error.to_string())?;
        let now = clock.elapsed();
        let taken = bytes.chunks(SEND_BYTES).all(|payload| sender.push(payload, now));
        taken.then_some(()).ok_or_else(|| "its server left packets unacknowledged".into())
    }

    fn write(&mut self) -> Result<(), String> {
        let (now, socket) = (self.clock.elapsed(), &self.socket);
        match &mut self.state {
            State::Calling(caller) => {
                // Lost datagrams are sent again.
                let _ = caller.poll(now).map(|datagram| socket.send(&datagram));
                Ok(())
            }
            State::Sending(sender) => {
                sender.poll(now);
                sender.transmit(now, |datagram| socket.send(datagram).is_ok());
                let over = sender.over().map(|over| format!("its server ended the connection: {over:?}"));
                over.map_or(Ok(()), Err)
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        match &self.state {
            State::Calling(_) => None,
            State::Sending(sender) => Some(self.clock + sender.next_at()),
        }
    }

    fn end(&mut self) {
        if let State::Sending(sender) = &mut self.state {
            sender.shut_down(self.clock.elapsed());
        }
        let _ = self.write();
    }
}

/// A connection of a destination.
struct Arrival {
    peer: SocketAddr,
    /// The caller's socket.
    caller: u32,
    /// The answer to its conclusion, which it may repeat.
    answer: Vec<u8>,
    connection: Connection,
    demuxer: Demuxer,
    route: Option<usize>,
}

/// Takes all destinations until `ended` is dropped.
pub(super) fn receive(socket: &UdpSocket, shared: &Shared, mut ended: oneshot::Receiver<()>) {
    socket.set_read_timeout(Some(WAIT)).expect("a socket with a limit");
    let cookies = Cookies::new(&[7; 16]);
    let mut arrivals: HashMap<u32, Arrival> = HashMap::new();
    let (mut block, mut looked) = ([0; DATAGRAM_BYTES], Duration::ZERO);
    while ended.try_recv() == Err(TryRecvError::Empty) {
        if let Ok((count, from)) = socket.recv_from(&mut block) {
            let (datagram, now) = (&block[..count], shared.clock.elapsed());
            match destination(datagram) {
                Some(0) => greet(socket, &cookies, &mut arrivals, datagram, from, shared),
                Some(own) => {
                    if let Some(arrival) = arrivals.get_mut(&own) {
                        arrival.connection.input(BytesMut::from(datagram), now);
                    }
                }
                None => {}
            }
        }
        let now = shared.clock.elapsed();
        if now >= looked + WAIT {
            looked = now;
            arrivals.values_mut().for_each(|arrival| arrival.look(socket, shared, now));
        }
    }
}

fn greet(
    socket: &UdpSocket,
    cookies: &Cookies,
    arrivals: &mut HashMap<u32, Arrival>,
    datagram: &[u8],
    from: SocketAddr,
    shared: &Shared,
) {
    let now = shared.clock.elapsed();
    let answer = match Request::parse(datagram) {
        Some(Request::Induction(hello)) => hello.answer(cookies.make(from, now), from.ip()),
        Some(Request::Conclusion(asked)) if cookies.is_valid(asked.cookie, from, now) => {
            let mut known = arrivals.values();
            match known.find(|known| known.peer == from && known.caller == asked.caller) {
                Some(known) => known.answer.clone(),
                None => {
                    let own = u32::try_from(arrivals.len() + 1).unwrap_or(u32::MAX);
                    let Accepted { answer, connection } =
                        Connection::accept(&asked, own, from.ip(), None, now, now);
                    let (caller, route) = (asked.caller, shared.only_route(asked.stream_id()));
                    let (kept, demuxer) = (answer.clone(), Demuxer::default());
                    let arrival = Arrival { peer: from, caller, answer: kept, connection, demuxer, route };
                    arrivals.insert(own, arrival);
                    answer
                }
            }
        }
        _ => return,
    };
    // A lost answer is asked for again.
    let _ = socket.send_to(&answer, from);
}

impl Arrival {
    /// Gives the frames that are due.
    fn look(&mut self, socket: &UdpSocket, shared: &Shared, now: Duration) {
        let Self { connection, demuxer, route, .. } = self;
        connection.poll(now);
        let mut packets = Vec::new();
        while let Some(delivery) = connection.give(now) {
            match delivery {
                // Frames then are missing, which is counted.
                Delivery::Lost => demuxer.lost(),
                Delivery::Payload(payload) => {
                    if demuxer.push(&payload, &mut packets).is_err() {
                        *demuxer = Demuxer::default();
                    }
                }
            }
        }
        packets.iter().for_each(|packet| shared.keep(*route, packet, now));
        for datagram in connection.take_output() {
            let _ = socket.send_to(&datagram, self.peer);
        }
    }
}
