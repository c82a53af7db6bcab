//! Helpers for unit tests.

use bytes::{Buf, Bytes};

use crate::rtmp::amf0::Value;
use crate::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, Message, MessageHeader};
use crate::rtmp::handshake::BLOCK_BYTES;
use crate::rtmp::message::{Command, Control, kind};

/// Seeded xorshift generator: the same seed gives the same test on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Bytes of a hexadecimal text.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

/// An AMF0 object with the given members.
pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The other side of a session under test: writes messages and reads answers with the public layers.
pub(crate) struct Peer {
    reader: ChunkReader,
    writer: ChunkWriter,
    /// Remaining handshake bytes of the session to skip.
    handshake_left: usize,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Peer {
            reader: ChunkReader::default(),
            writer: ChunkWriter::default(),
            handshake_left: 1 + 2 * BLOCK_BYTES,
        }
    }

    /// Both handshake blocks of this side.
    pub(crate) fn handshake() -> Vec<u8> {
        vec![3; 1 + 2 * BLOCK_BYTES]
    }

    pub(crate) fn message(&mut self, kind: u8, stream: u32, timestamp: u32, body: &[u8]) -> Vec<u8> {
        let mut output = ChunkOutput::default();
        let header = MessageHeader { chunk_stream: u32::from(kind) + 3, timestamp, kind, stream };
        let body = Bytes::copy_from_slice(body);
        self.writer.write(&mut output, header, &[], &body).expect("short message");
        if let Ok(Some(Control::SetChunkSize(bytes))) = Control::parse(kind, &body) {
            self.writer.set_chunk_size(bytes);
        }
        output.take().to_vec()
    }

    pub(crate) fn control(&mut self, control: Control) -> Vec<u8> {
        let (kind, body) = control.encode();
        self.message(kind, 0, 0, &body)
    }

    pub(crate) fn command(&mut self, stream: u32, name: &str, transaction: f64, args: &[Value]) -> Vec<u8> {
        let command = Command { name: name.to_owned(), transaction, args: args.to_vec() };
        self.message(kind::COMMAND, stream, 0, &command.encode())
    }

    /// A command whose arguments after the null object are texts.
    pub(crate) fn call(&mut self, stream: u32, name: &str, transaction: f64, texts: &[&str]) -> Vec<u8> {
        let mut args = vec![Value::Null];
        args.extend(texts.iter().map(|text| Value::String((*text).to_owned())));
        self.command(stream, name, transaction, &args)
    }

    /// Reads what the session wrote.
    pub(crate) fn read(&mut self, mut bytes: Bytes) -> Vec<Message> {
        let skipped = self.handshake_left.min(bytes.len());
        self.handshake_left -= skipped;
        bytes.advance(skipped);
        let mut messages = Vec::new();
        while let Some(message) = self.reader.read(&mut bytes).expect("session writes valid chunks") {
            let control = Control::parse(message.header.kind, &message.payload).expect("valid control");
            if let Some(Control::SetChunkSize(bytes)) = control {
                self.reader.set_chunk_size(bytes);
            }
            messages.push(message);
        }
        messages
    }

    /// Reads what the session wrote and keeps the commands.
    pub(crate) fn read_commands(&mut self, bytes: Bytes) -> Vec<Command> {
        let messages = self.read(bytes);
        let commands = messages.iter().filter(|message| message.header.kind == kind::COMMAND);
        commands.map(|message| Command::parse(kind::COMMAND, &message.payload).expect("valid")).collect()
    }
}

/// `name transaction code` of commands, with the code of the information object.
pub(crate) fn outline(commands: &[Command]) -> Vec<String> {
    let line = |command: &Command| {
        let code = command.args.iter().find_map(|value| value.member("code")?.text()).unwrap_or("-");
        format!("{} {} {code}", command.name, command.transaction)
    };
    commands.iter().map(line).collect()
}
