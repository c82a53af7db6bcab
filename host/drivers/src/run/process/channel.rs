//! The socket between host and child: a stream of messages, each with its lengths in front.
//!
//! ```text
//!  length of the content (u32) | length of the bytes after it (u32) | number of descriptors (u8) | content | bytes
//! ```

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message in bytes: the recordings of a driver, or an asset for viewers, with a margin.
const MESSAGE_BYTES_MAX: usize = 192 * 1024 * 1024;
const PREFIX: usize = 9;
/// Socket buffer in each direction, if the system allows it.
const BUFFER_BYTES: usize = 1024 * 1024;
/// Most memory blocks that the system accepts in one call.
const SLICES_MAX: usize = 512;
/// Least free space for a read.
const READ_BYTES_MIN: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelError {
    TimedOut,
    Closed,
    TooLarge,
    /// The content cannot be serialized or parsed.
    Malformed,
    System(Errno),
}

/// Two connected ends.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for end in [&ours, &theirs] {
        // The system may allow less; then senders block a little earlier.
        let _ = set_socket_send_buffer_size(end, BUFFER_BYTES);
        let _ = set_socket_recv_buffer_size(end, BUFFER_BYTES);
    }
    Ok((ours, theirs))
}

/// Both directions of one end; messages are read in blocks of `block_bytes` or more.
pub(super) fn split(end: OwnedFd, block_bytes: usize) -> (Sender, Receiver) {
    let socket = Arc::new(end);
    let sender = Sender { socket: socket.clone(), waiting: Mutex::default(), writing: Mutex::default() };
    (
        sender,
        Receiver { socket, block_bytes, block: BytesMut::new(), filled: 0, descriptors: VecDeque::new() },
    )
}

/// Sets the time limits of every later send and receive of an end.
pub(super) fn set_limits(end: &OwnedFd, send: Option<Duration>, recv: Option<Duration>) -> Result<(), Errno> {
    set_socket_timeout(end, Timeout::Send, send)?;
    set_socket_timeout(end, Timeout::Recv, recv)
}

/// A queued message.
struct Frame {
    head: Vec<u8>,
    bytes: Vec<Bytes>,
    descriptor: Option<OwnedFd>,
}

pub(super) struct Sender {
    socket: Arc<OwnedFd>,
    waiting: Mutex<Vec<Frame>>,
    writing: Mutex<()>,
}

impl Sender {
    /// Sends a message after the queued ones; blocks until the socket accepts it.
    pub(super) fn send(
        &self,
        content: &impl Serialize,
        bytes: Vec<Bytes>,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ChannelError> {
        self.push(content, bytes, descriptor)?;
        self.flush()
    }

    /// Queues a message for the next [`Sender::flush`], so that many are sent at once.
    pub(super) fn push(
        &self,
        content: &impl Serialize,
        bytes: Vec<Bytes>,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ChannelError> {
        let mut head = postcard::to_extend(content, vec![0; PREFIX]).map_err(|_| ChannelError::Malformed)?;
        let (said, behind) = (head.len() - PREFIX, bytes.iter().map(Bytes::len).sum::<usize>());
        if said + behind > MESSAGE_BYTES_MAX {
            return Err(ChannelError::TooLarge);
        }
        head[..4].copy_from_slice(&(said as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(behind as u32).to_le_bytes());
        head[8] = u8::from(descriptor.is_some());
        self.waiting.lock().push(Frame { head, bytes, descriptor });
        Ok(())
    }

    /// Sends all queued messages.
    pub(super) fn flush(&self) -> Result<(), ChannelError> {
        let _one = self.writing.lock();
        loop {
            let frames = std::mem::take(&mut *self.waiting.lock());
            let mut rest = &frames[..];
            if rest.is_empty() {
                return Ok(());
            }
            // A descriptor is sent with the first byte of its message.
            while let Some((first, others)) = rest.split_first() {
                let count = others.iter().position(|frame| frame.descriptor.is_some());
                let (now, later) = rest.split_at(1 + count.unwrap_or(others.len()));
                self.write(now, first.descriptor.as_ref())?;
                rest = later;
            }
        }
    }

    fn write(&self, frames: &[Frame], mut descriptor: Option<&OwnedFd>) -> Result<(), ChannelError> {
        let parts = frames
            .iter()
            .flat_map(|frame| std::iter::once(&frame.head[..]).chain(frame.bytes.iter().map(|it| &it[..])));
        let mut slices: Vec<IoSlice<'_>> = parts.filter(|part| !part.is_empty()).map(IoSlice::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
            if !descriptors.is_empty() {
                // There is space for one.
                let _ = control.push(SendAncillaryMessage::ScmRights(&descriptors));
            }
            let now = &rest[..rest.len().min(SLICES_MAX)];
            match rustix::net::sendmsg(&self.socket, now, &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    descriptor = None;
                    IoSlice::advance_slices(&mut rest, sent);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(read_errno(error)),
            }
        }
        Ok(())
    }

    /// Ends both directions and wakes blocked readers and writers.
    pub(super) fn shut_down(&self) {
        // Fails only when the other side has closed, which has the same effect.
        let _ = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}

/// A received message.
#[derive(Debug)]
pub(super) struct Message<T> {
    pub(super) content: T,
    /// The bytes after the content.
    pub(super) bytes: Bytes,
    /// The descriptor of the message.
    pub(super) descriptor: Option<OwnedFd>,
    /// A descriptor was sent, and this process had no free one.
    pub(super) lost_descriptor: bool,
}

/// What one side receives.
pub(super) struct Receiver {
    socket: Arc<OwnedFd>,
    block_bytes: usize,
    /// Received bytes are at its beginning.
    block: BytesMut,
    filled: usize,
    /// Received descriptors whose message is not complete; `None` for one that was lost.
    descriptors: VecDeque<Option<OwnedFd>>,
}

impl Receiver {
    /// Waits for the next message. Its bytes are a part of the block that was read.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Message<T>, ChannelError> {
        loop {
            let mut wanted = PREFIX;
            if let Some(prefix) = self.block[..self.filled].first_chunk::<PREFIX>() {
                let [s0, s1, s2, s3, b0, b1, b2, b3, count] = *prefix;
                let said = u32::from_le_bytes([s0, s1, s2, s3]) as usize;
                let behind = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
                if said + behind > MESSAGE_BYTES_MAX {
                    return Err(ChannelError::TooLarge);
                }
                wanted += said + behind;
                if self.filled >= wanted {
                    return self.take(said, wanted, count > 0);
                }
            }
            self.fill(wanted)?;
        }
    }

    fn take<T: DeserializeOwned>(
        &mut self,
        said: usize,
        whole: usize,
        has_descriptor: bool,
    ) -> Result<Message<T>, ChannelError> {
        let mut bytes = self.block.split_to(whole).freeze();
        self.filled -= whole;
        let descriptor = if has_descriptor { self.descriptors.pop_front().flatten() } else { None };
        let lost_descriptor = has_descriptor && descriptor.is_none();
        let head = bytes.split_to(PREFIX + said);
        let content = postcard::from_bytes(&head[PREFIX..]).map_err(|_| ChannelError::Malformed)?;
        Ok(Message { content, bytes, descriptor, lost_descriptor })
    }

    /// Reads available data into a block that holds at least `wanted` bytes.
    fn fill(&mut self, wanted: usize) -> Result<(), ChannelError> {
        let capacity = wanted.max(self.filled + READ_BYTES_MIN);
        if self.block.len() < capacity {
            let mut next = BytesMut::zeroed(self.block_bytes.max(capacity));
            next[..self.filled].copy_from_slice(&self.block[..self.filled]);
            self.block = next;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut self.block[self.filled..])];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(got) => break got,
                Err(Errno::INTR) => {}
                Err(error) => return Err(read_errno(error)),
            }
        };
        let came = control.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        if came.is_some() || got.flags.contains(ReturnFlags::CTRUNC) {
            self.descriptors.push_back(came);
        }
        self.filled += got.bytes;
        if got.bytes == 0 { Err(ChannelError::Closed) } else { Ok(()) }
    }
}

fn read_errno(error: Errno) -> ChannelError {
    match error {
        Errno::AGAIN => ChannelError::TimedOut,
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => ChannelError::Closed,
        other => ChannelError::System(other),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::super::shortage::tests::{in_a_process_with_few_files, take_all_files};
    use super::*;

    const BLOCK: usize = 64 * 1024;

    fn ends() -> ((Sender, Receiver), (Sender, Receiver)) {
        let (ours, theirs) = pair().unwrap();
        (split(ours, BLOCK), split(theirs, BLOCK))
    }

    fn file(text: &str) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.into()
    }

    fn text(descriptor: OwnedFd) -> String {
        let (mut file, mut text) = (std::fs::File::from(descriptor), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn messages_of_every_size_keep_their_order_bytes_and_descriptors() {
        let ((sender, _), (_, mut receiver)) = ends();
        let sizes = [0, 1, 700, BLOCK, 3, 5 * BLOCK, 0, BLOCK / 2, 2 * 1024 * 1024, 9];
        let sending = std::thread::spawn(move || {
            for (number, size) in sizes.into_iter().enumerate() {
                let bytes = vec![
                    Bytes::from(vec![number as u8; size / 3]),
                    Bytes::from(vec![number as u8; size - size / 3]),
                ];
                let descriptor = number.is_multiple_of(3).then(|| file(&number.to_string()));
                sender.push(&format!("message {number}"), bytes, descriptor).unwrap();
                if number.is_multiple_of(2) {
                    sender.flush().unwrap();
                }
            }
            sender.flush().unwrap();
        });
        for (number, size) in sizes.into_iter().enumerate() {
            let message = receiver.next::<String>().unwrap();
            assert_eq!(message.content, format!("message {number}"));
            assert_eq!(message.bytes, vec![number as u8; size]);
            let expected = number.is_multiple_of(3).then(|| number.to_string());
            assert_eq!(message.descriptor.map(text), expected);
        }
        sending.join().unwrap();
        assert_eq!(receiver.next::<String>().unwrap_err(), ChannelError::Closed);
    }

    #[test]
    fn an_invalid_message_is_reported_and_the_next_one_is_whole() {
        let ((sender, _), (_, mut receiver)) = ends();
        sender.push(&u8::MAX, Vec::new(), None).unwrap();
        sender.send(&"next", Vec::new(), None).unwrap();
        assert_eq!(receiver.next::<String>().unwrap_err(), ChannelError::Malformed);
        assert_eq!(receiver.next::<String>().unwrap().content, "next");
        rustix::io::write(&*sender.socket, &[255; PREFIX]).unwrap();
        assert_eq!(receiver.next::<String>().unwrap_err(), ChannelError::TooLarge);
    }

    #[test]
    fn a_silent_or_stuck_peer_times_out() {
        let (ours, theirs) = pair().unwrap();
        set_limits(&ours, Some(Duration::from_millis(1)), Some(Duration::from_millis(1))).unwrap();
        let ((sender, mut receiver), _other) = (split(ours, BLOCK), theirs);
        assert_eq!(receiver.next::<String>().unwrap_err(), ChannelError::TimedOut);
        let full = (0..1000).find_map(|_| sender.send(&"x", vec![Bytes::from(vec![0; BLOCK])], None).err());
        assert_eq!(full, Some(ChannelError::TimedOut));
        sender.shut_down();
        assert_eq!(receiver.next::<String>().unwrap_err(), ChannelError::Closed);
    }

    const FEW_FILES: &str =
        "run::process::channel::tests::a_process_without_free_descriptors_gets_the_message_without_one";

    #[test]
    fn a_process_without_free_descriptors_gets_the_message_without_one() {
        if !in_a_process_with_few_files(FEW_FILES) {
            return;
        }
        let ((sender, _), (_, mut receiver)) = ends();
        let descriptor = file("beside");
        let again = descriptor.try_clone().unwrap();
        let mut taken = take_all_files();
        sender.send(&"short", Vec::new(), Some(descriptor)).unwrap();
        // The sent descriptors are closed on this side.
        taken.extend(take_all_files());
        let message = receiver.next::<String>().unwrap();
        assert!(message.lost_descriptor && message.descriptor.is_none());
        drop(taken);
        sender.send(&"whole", Vec::new(), Some(again)).unwrap();
        let message = receiver.next::<String>().unwrap();
        assert_eq!(
            (message.lost_descriptor, message.descriptor.map(text).as_deref()),
            (false, Some("beside"))
        );
    }
}
