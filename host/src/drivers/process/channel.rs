//! The socket between host and child: packets, so that a message is whole or not there, each with a size limit.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

/// Largest message in bytes. Holds a configuration ([`super::super::schema`]) with escapes and room to spare.
pub(super) const MESSAGE_BYTES_MAX: usize = 160 * 1024;
/// Most descriptors beside one message.
const DESCRIPTORS_MAX: usize = 2;
/// Bytes that may wait in each direction.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Why nothing came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelError {
    /// Not within the time limit.
    TimedOut,
    /// The other side is gone.
    Closed,
    /// A message over the limit, or with too many descriptors.
    TooLarge,
    /// A message of so many bytes, which are in the buffer. This process could not take all descriptors beside it, and has none.
    Short(usize),
    /// Anything else.
    System(Errno),
}

/// One end.
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Two connected ends.
    pub(super) fn pair() -> Result<(Channel, OwnedFd), Errno> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // The system may allow less; then messages wait a little sooner.
        let _ = set_socket_send_buffer_size(&ours, BUFFER_BYTES);
        let _ = set_socket_send_buffer_size(&theirs, BUFFER_BYTES);
        let _ = set_socket_recv_buffer_size(&ours, BUFFER_BYTES);
        Ok((Channel { socket: ours }, theirs))
    }

    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Bounds every later send and receive.
    pub(super) fn set_limits(&self, send: Option<Duration>, recv: Option<Duration>) -> Result<(), Errno> {
        set_socket_timeout(&self.socket, Timeout::Send, send)?;
        set_socket_timeout(&self.socket, Timeout::Recv, recv)
    }

    /// Sends one message with `descriptors` beside it; waits for room.
    pub(super) fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        self.send_with(message, descriptors, SendFlags::NOSIGNAL)
    }

    /// Sends one message if there is room for it now.
    pub(super) fn try_send(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.send_with(message, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), ChannelError> {
        if message.len() > MESSAGE_BYTES_MAX || fds.len() > DESCRIPTORS_MAX {
            return Err(ChannelError::TooLarge);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            // There is room for DESCRIPTORS_MAX.
            let _ = control.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            let sent = rustix::net::sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, flags);
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(read_errno(error)),
            }
        }
    }

    /// Waits for one message; it is the filled part of `buffer`, which has [`MESSAGE_BYTES_MAX`] bytes.
    pub(super) fn recv(&self, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            let mut parts = [IoSliceMut::new(buffer)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(got) => break got,
                Err(Errno::INTR) => {}
                Err(error) => return Err(read_errno(error)),
            }
        };
        // Taken out in every case, so that none stays open.
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        let is_cut = got.flags.contains(ReturnFlags::CTRUNC);
        let too_many =
            descriptors.len() > DESCRIPTORS_MAX || (is_cut && descriptors.len() == DESCRIPTORS_MAX);
        if too_many || got.flags.contains(ReturnFlags::TRUNC) {
            return Err(ChannelError::TooLarge);
        }
        // There was room in the message for more than came: the kernel found none in this process.
        if is_cut {
            return Err(ChannelError::Short(got.bytes));
        }
        // Nobody sends empty messages: this is the end.
        if got.bytes == 0 { Err(ChannelError::Closed) } else { Ok((got.bytes, descriptors)) }
    }

    /// Ends both directions; whoever waits is woken.
    pub(super) fn shut_down(&self) {
        // It only fails when the other side has closed, which is as good.
        let _ = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}

fn read_errno(error: Errno) -> ChannelError {
    match error {
        Errno::AGAIN => ChannelError::TimedOut,
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => ChannelError::Closed,
        Errno::MSGSIZE => ChannelError::TooLarge,
        other => ChannelError::System(other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::super::shortage::tests::{in_a_process_with_few_files, take_all_files};
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        (ours, Channel::new(theirs))
    }

    #[test]
    fn messages_keep_their_bounds_and_bring_descriptors() {
        let (host, child) = pair();
        let file = tempfile::tempfile().unwrap();
        host.send(b"one", &[]).unwrap();
        host.send(b"second", &[file.as_fd()]).unwrap();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, descriptors) = child.recv(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], descriptors.len()), (&b"one"[..], 0));
        let (len, descriptors) = child.recv(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], descriptors.len()), (&b"second"[..], 1));
        drop(host);
        assert_eq!(child.recv(&mut buffer).unwrap_err(), ChannelError::Closed);
        assert_eq!(child.send(b"x", &[]).unwrap_err(), ChannelError::Closed);
    }

    const FEW_FILES: &str =
        "drivers::process::channel::tests::who_has_no_descriptors_left_blames_nobody_for_theirs";

    #[test]
    fn who_has_no_descriptors_left_blames_nobody_for_theirs() {
        if !in_a_process_with_few_files(FEW_FILES) {
            return;
        }
        let (host, child) = pair();
        let file = tempfile::tempfile().unwrap();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut taken = take_all_files();
        for left in [0, 1] {
            child.send(b"answer", &[file.as_fd(), file.as_fd()]).unwrap();
            assert_eq!(host.recv(&mut buffer).unwrap_err(), ChannelError::Short(6), "{left} left");
            assert_eq!(&buffer[..6], b"answer");
            taken.pop();
        }
        // What came was closed again.
        child.send(b"x", &[file.as_fd(), file.as_fd()]).unwrap();
        assert_eq!(host.recv(&mut buffer).unwrap().1.len(), 2);
    }

    #[test]
    fn too_many_descriptors_are_the_childs_fault() {
        let (host, child) = pair();
        let file = tempfile::tempfile().unwrap();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        for count in DESCRIPTORS_MAX + 1..DESCRIPTORS_MAX + 8 {
            let many = vec![file.as_fd(); count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
            let part = [IoSlice::new(b"x")];
            rustix::net::sendmsg(&child.socket, &part, &mut control, SendFlags::empty()).unwrap();
            assert_eq!(host.recv(&mut buffer).unwrap_err(), ChannelError::TooLarge, "{count}");
        }
    }

    #[test]
    fn every_limit_refuses() {
        let (host, child) = pair();
        let file = tempfile::tempfile().unwrap();
        let most = vec![7; MESSAGE_BYTES_MAX];
        child.send(&most, &[file.as_fd(), file.as_fd()]).unwrap();
        assert_eq!(child.send(&[0; MESSAGE_BYTES_MAX + 1], &[]).unwrap_err(), ChannelError::TooLarge);
        let three = [file.as_fd(), file.as_fd(), file.as_fd()];
        assert_eq!(child.send(b"x", &three).unwrap_err(), ChannelError::TooLarge);
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, descriptors) = host.recv(&mut buffer).unwrap();
        assert_eq!((len, descriptors.len()), (MESSAGE_BYTES_MAX, 2));
        // What a child sends past the limits with a socket of its own.
        rustix::net::send(&child.socket, &[1; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).unwrap();
        assert_eq!(host.recv(&mut buffer).unwrap_err(), ChannelError::TooLarge);
        host.set_limits(Some(Duration::from_millis(1)), Some(Duration::from_millis(1))).unwrap();
        assert_eq!(host.recv(&mut buffer).unwrap_err(), ChannelError::TimedOut);
        let full = (0..10_000).find_map(|_| host.send(&most, &[]).err());
        assert_eq!(full, Some(ChannelError::TimedOut));
    }
}
