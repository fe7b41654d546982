//! The documents of a file, read on several threads and handed on in the order of the file.
//!
//! YAML is slow to parse, and documents are independent. Workers take batches of them in turn and
//! stop when they are a few chunks ahead of the one who takes the objects, so that no more than
//! that is ever held.

use std::{
    num::NonZero,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use kube_batch_api::yaml::Document;

use super::item::{Event, read_document};

/// Documents of one batch together have at least this many bytes. Measured: 19 MB are read equally
/// fast with anything from 32 KiB to 1 MiB.
const BATCH_BYTES: usize = 128 << 10;
/// Bytes or events after which a worker hands on what it has. Guessed.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_EVENTS: usize = 256;
/// Chunks that a worker may be ahead.
const CHUNKS_AHEAD: usize = 4;
/// More threads than this do not help one consumer. Guessed.
const MAX_THREADS: usize = 8;

/// Reads all documents of a file.
pub(super) fn read_documents<'a>(
    source: &'a str,
    documents: &'a [Document<'a>],
    consume: &mut dyn FnMut(Event<'a>),
) {
    let batches = batches(documents);
    let available = thread::available_parallelism().map_or(1, NonZero::get);
    let n_threads = available.min(batches.len()).min(MAX_THREADS);
    if n_threads <= 1 {
        for (at, document) in documents.iter().enumerate() {
            read_document(source, at + 1, document, consume);
        }
        return;
    }
    thread::scope(|scope| {
        let receivers: Vec<Receiver<Chunk<'a>>> = (0..n_threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
                let batches = &batches;
                scope.spawn(move || {
                    let mut outbox = Outbox { sender, events: vec![], n_bytes: 0, is_open: true };
                    for batch in batches.iter().skip(first).step_by(n_threads) {
                        outbox.read(source, batch);
                    }
                });
                receiver
            })
            .collect();
        for at in 0..batches.len() {
            // A worker that is gone has panicked; leaving the scope passes that on.
            while let Ok(chunk) = receivers[at % n_threads].recv() {
                chunk.events.into_iter().for_each(&mut *consume);
                if chunk.ends_batch {
                    break;
                }
            }
        }
    });
}

/// Documents in a row, with the number of the first, from 1.
struct Batch<'a> {
    first_number: usize,
    documents: &'a [Document<'a>],
}

fn batches<'a>(documents: &'a [Document<'a>]) -> Vec<Batch<'a>> {
    let mut batches = vec![];
    let mut start = 0;
    let mut n_bytes = 0;
    for (at, document) in documents.iter().enumerate() {
        n_bytes += document.bytes.len();
        if n_bytes >= BATCH_BYTES || at + 1 == documents.len() {
            batches.push(Batch { first_number: start + 1, documents: &documents[start..=at] });
            (start, n_bytes) = (at + 1, 0);
        }
    }
    batches
}

struct Chunk<'a> {
    events: Vec<Event<'a>>,
    ends_batch: bool,
}

/// What a worker has read and not yet handed on.
struct Outbox<'a> {
    sender: SyncSender<Chunk<'a>>,
    events: Vec<Event<'a>>,
    n_bytes: usize,
    /// Whether anybody still wants it.
    is_open: bool,
}

impl<'a> Outbox<'a> {
    fn read(&mut self, source: &'a str, batch: &Batch<'a>) {
        for (at, document) in batch.documents.iter().enumerate() {
            if !self.is_open {
                return;
            }
            read_document(source, batch.first_number + at, document, &mut |event| self.add(event));
        }
        self.hand_on(true);
    }

    fn add(&mut self, event: Event<'a>) {
        self.n_bytes += event.n_bytes();
        self.events.push(event);
        if self.n_bytes >= CHUNK_BYTES || self.events.len() >= CHUNK_EVENTS {
            self.hand_on(false);
        }
    }

    fn hand_on(&mut self, ends_batch: bool) {
        self.n_bytes = 0;
        let chunk = Chunk { events: std::mem::take(&mut self.events), ends_batch };
        self.is_open &= self.sender.send(chunk).is_ok();
    }
}
