//! An encoder that behaves like OBS (order of calls, chunk size and closing calls of its RTMP library), message by message, so that a
//! test gets each answer and can send tags that our own client never sends.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use satcast_media::rtmp::amf0::Value;
use satcast_media::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, MessageHeader};
use satcast_media::rtmp::handshake::Handshake;
use satcast_media::rtmp::message::{Command, Control, kind};

const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The chunk size that OBS sets.
const CHUNK_BYTES: usize = 4096;
const READ_BYTES: usize = 16 * 1024;
/// OBS sends all messages except commands on one chunk stream.
const MEDIA_CHUNK_STREAM: u32 = 4;
/// The first message stream id of servers.
const STREAM: u32 = 1;

/// A connection of such an encoder.
pub struct Obs {
    socket: TcpStream,
    reader: ChunkReader,
    writer: ChunkWriter,
    /// Answers that the test has not read yet.
    answers: VecDeque<Command>,
}

impl Obs {
    /// Connects to `app`.
    ///
    /// # Panics
    /// When the service refuses it.
    #[track_caller]
    #[must_use]
    pub fn connect(address: SocketAddr, app: &str) -> Self {
        let mut socket = TcpStream::connect(address).expect("the RTMP port accepts connections");
        socket.set_read_timeout(Some(ANSWER_LIMIT)).expect("a read time-out");
        let mut output = ChunkOutput::default();
        let mut handshake = Handshake::client(&mut output);
        let mut block = Bytes::new();
        loop {
            socket.write_all(&output.take()).expect("the handshake is taken");
            block = [block, receive(&mut socket).expect("the service answers the handshake")].concat().into();
            if handshake.read(&mut block, &mut output).expect("a handshake") {
                break;
            }
        }
        socket.write_all(&output.take()).expect("the handshake is taken");
        let (reader, writer) = (ChunkReader::default(), ChunkWriter::default());
        let mut obs = Self { socket, reader, writer, answers: VecDeque::new() };
        obs.read(block);
        let member = |name: &str, text: &str| (name.to_owned(), Value::String(text.to_owned()));
        obs.call(
            "connect",
            1.0,
            vec![Value::Object(vec![
                member("app", app),
                member("type", "nonprivate"),
                member("flashVer", "FMLE/3.0 (compatible; FMSc/1.0)"),
                member("swfUrl", &format!("rtmp://{address}/{app}")),
                member("tcUrl", &format!("rtmp://{address}/{app}")),
            ])],
        );
        assert_eq!(obs.answer("_result").transaction, 1.0);
        obs
    }

    /// Asks to publish `name` as OBS asks: chunk size, releaseStream, FCPublish, createStream, publish.
    ///
    /// # Panics
    /// When an answer fails to come.
    #[track_caller]
    pub fn ask(&mut self, name: &str) {
        let (kind, body) = Control::SetChunkSize(CHUNK_BYTES).encode();
        self.message(2, kind, 0, 0, &body);
        self.writer.set_chunk_size(CHUNK_BYTES);
        let text = || Value::String(name.to_owned());
        self.call("releaseStream", 2.0, vec![Value::Null, text()]);
        self.call("FCPublish", 3.0, vec![Value::Null, text()]);
        self.call("createStream", 4.0, vec![Value::Null]);
        let created = self.answer("_result");
        assert_eq!((created.transaction, created.number(1)), (4.0, Some(f64::from(STREAM))));
        self.call("publish", 5.0, vec![Value::Null, text(), Value::String("live".into())]);
    }

    /// The next answer, which must have this name.
    ///
    /// # Panics
    /// When it is another or none comes.
    #[track_caller]
    pub fn answer(&mut self, name: &str) -> Command {
        while self.answers.is_empty() {
            let block = receive(&mut self.socket);
            self.read(block.unwrap_or_else(|| panic!("the service closed instead of answering {name}")));
        }
        let answer = self.answers.pop_front().expect("an answer");
        assert_eq!(answer.name, name, "{answer:?}");
        answer
    }

    /// Sends one audio or video message.
    ///
    /// # Panics
    /// When the service has closed the connection.
    pub fn media(&mut self, is_video: bool, ms: u32, body: &[u8]) {
        let kind = if is_video { kind::VIDEO } else { kind::AUDIO };
        self.message(MEDIA_CHUNK_STREAM, kind, STREAM, ms, body);
    }

    /// Leaves like OBS, with FCUnpublish and deleteStream, and waits for the answer about the end.
    ///
    /// # Panics
    /// When it fails to come.
    #[track_caller]
    pub fn leave(&mut self, name: &str) {
        self.call("FCUnpublish", 6.0, vec![Value::Null, Value::String(name.to_owned())]);
        self.call("deleteStream", 7.0, vec![Value::Null, Value::Number(f64::from(STREAM))]);
        let status = self.answer("onStatus");
        let code = status.args.iter().find_map(|value| value.member("code")).and_then(Value::text);
        assert_eq!(code, Some("NetStream.Unpublish.Success"), "{status:?}");
    }

    fn call(&mut self, name: &str, transaction: f64, args: Vec<Value>) {
        let stream = if name == "publish" { STREAM } else { 0 };
        let body = Command { name: name.to_owned(), transaction, args }.encode();
        self.message(3, kind::COMMAND, stream, 0, &body);
    }

    fn message(&mut self, chunk_stream: u32, kind: u8, stream: u32, timestamp: u32, body: &[u8]) {
        let header = MessageHeader { chunk_stream, timestamp, kind, stream };
        let mut output = ChunkOutput::default();
        self.writer.write(&mut output, header, &[], &Bytes::copy_from_slice(body)).expect("a message");
        self.socket.write_all(&output.take()).expect("the service reads");
    }

    fn read(&mut self, mut block: Bytes) {
        while let Some(message) = self.reader.read(&mut block).expect("chunks of the service") {
            let kind = message.header.kind;
            match Control::parse(kind, &message.payload).expect("a control message") {
                Some(Control::SetChunkSize(bytes)) => self.reader.set_chunk_size(bytes),
                Some(_) => {}
                None if kind == kind::COMMAND => {
                    let command = Command::parse(kind, &message.payload).expect("a command of the service");
                    self.answers.push_back(command);
                }
                None => {}
            }
        }
    }
}

/// The received bytes; `None` at the end of the connection.
fn receive(socket: &mut TcpStream) -> Option<Bytes> {
    let mut block = [0; READ_BYTES];
    match socket.read(&mut block) {
        Ok(0) | Err(_) => None,
        Ok(count) => Some(Bytes::copy_from_slice(&block[..count])),
    }
}
