//! The file of a recording. Disks may be slow: every write runs on a thread for blocking work, never on the driver's one worker.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use satcast_plugin_api::{Error, Packet};

use crate::flv;

/// Files with the same name in one folder.
const SAME_NAME_MAX: u32 = 10_000;

/// A recording that grows; written bytes never change.
pub(crate) struct Recording {
    name: String,
    file: Option<File>,
    bytes_max: u64,
    written: u64,
    // Decode time of the first media.
    base_ns: Option<i64>,
    newest_ns: i64,
}

impl Recording {
    /// Creates `<name>.flv` in `folder`, or `<name>-2.flv` and so on when it exists: a recording is never overwritten.
    pub(crate) async fn create(folder: &Path, name: &str, bytes_max: u64) -> Result<Self, Error> {
        let (folder, name) = (folder.to_path_buf(), name.to_owned());
        blocking(move || {
            for number in 1..=SAME_NAME_MAX {
                let name = if number == 1 { format!("{name}.flv") } else { format!("{name}-{number}.flv") };
                match OpenOptions::new().write(true).create_new(true).open(folder.join(&name)) {
                    Ok(mut file) => {
                        file.write_all(&flv::HEAD)?;
                        let written = flv::HEAD.len() as u64;
                        return Ok(Self {
                            name,
                            file: Some(file),
                            bytes_max,
                            written,
                            base_ns: None,
                            newest_ns: 0,
                        });
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
            }
            Err(std::io::Error::other("there are too many recordings of this name"))
        })
        .await
    }

    /// Appends packets and returns the bytes written.
    pub(crate) async fn write(&mut self, packets: Vec<Packet>) -> Result<u64, Error> {
        let mut bytes = Vec::new();
        for packet in &packets {
            if self.base_ns.is_none() && !packet.is_config() {
                self.base_ns = Some(packet.dts_ns);
            }
            self.newest_ns = self.newest_ns.max(packet.dts_ns);
            let base_ns = self.base_ns.unwrap_or(packet.dts_ns);
            flv::put(&mut bytes, packet, packet.dts_ns - base_ns);
        }
        let count = bytes.len() as u64;
        if self.written + count > self.bytes_max {
            return Err(Error::config("the recording has reached the largest size the operator allows"));
        }
        let mut file =
            self.file.take().ok_or_else(|| Error::internal("the file of the recording is closed"))?;
        let written = blocking(move || file.write_all(&bytes).map(|()| file)).await?;
        self.file = Some(written);
        self.written += count;
        Ok(count)
    }

    /// Flushes everything to the disk.
    pub(crate) async fn sync(&mut self) -> Result<(), Error> {
        if let Some(file) = self.file.take() {
            self.file = Some(blocking(move || file.sync_data().map(|()| file)).await?);
        }
        Ok(())
    }

    /// Flushes everything to the disk and closes the file.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        match self.file.take() {
            Some(file) => blocking(move || file.sync_all()).await,
            None => Ok(()),
        }
    }

    /// Name of the file in the driver's folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes written.
    pub(crate) fn len(&self) -> u64 {
        self.written
    }

    /// The file has playable media.
    pub(crate) fn has_media(&self) -> bool {
        self.base_ns.is_some()
    }

    /// Media in it, in milliseconds.
    pub(crate) fn span_ms(&self) -> u64 {
        let span_ns = self.base_ns.map_or(0, |base| self.newest_ns.saturating_sub(base));
        u64::try_from(span_ns / 1_000_000).unwrap_or(0)
    }
}

/// Runs `work` on a thread that may wait for a disk.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<R> + Send + 'static,
) -> Result<R, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| Error::internal("the thread that writes the recording has ended"))?;
    done.map_err(|error| Error::internal(format!("the recording cannot be written: {error}")))
}
