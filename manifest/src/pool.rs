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

use kube_batch_yaml::{Document, documents};

use crate::item::{Event, read_document};

/// Documents of one batch together have at least this many bytes. Guessed: a few hundred objects,
/// so that a turn is worth the message.
const BATCH_BYTES: usize = 128 << 10;
/// Bytes or events after which a worker hands on what it has. Guessed.
const CHUNK_BYTES: usize = 128 << 10;
const CHUNK_EVENTS: usize = 256;
/// Chunks that a worker may be ahead.
const CHUNKS_AHEAD: usize = 2;
/// More threads than this do not help one consumer. Guessed.
const MAX_THREADS: usize = 8;

/// Reads all documents of a file.
pub(crate) fn read_documents<'a>(
    source: &'a str,
    bytes: &'a [u8],
    consume: &mut dyn FnMut(Event<'a>),
) {
    let available = thread::available_parallelism().map_or(1, NonZero::get);
    let n_threads = available.min(bytes.len() / BATCH_BYTES).min(MAX_THREADS);
    if n_threads <= 1 {
        for (at, document) in documents(bytes).enumerate() {
            read_document(source, at + 1, &document, consume);
        }
        return;
    }
    thread::scope(|scope| {
        let receivers: Vec<Receiver<Chunk<'a>>> = (0..n_threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
                scope.spawn(move || {
                    let mut outbox = Outbox { sender, events: vec![], n_bytes: 0, is_open: true };
                    // Every worker cuts the whole file: that is cheap, and nobody has to keep
                    // what may be millions of pieces.
                    let batches = Batches { documents: documents(bytes), n_documents: 0 };
                    for batch in batches.skip(first).step_by(n_threads) {
                        outbox.read(source, &batch);
                    }
                });
                receiver
            })
            .collect();
        for worker in receivers.iter().cycle() {
            loop {
                // The first worker that has no batch left has had the last turn. One that
                // panicked ends this too, and the end of the scope passes the panic on.
                let Ok(chunk) = worker.recv() else { return };
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
    documents: Vec<Document<'a>>,
}

/// The documents of a file in batches.
struct Batches<'a, D: Iterator<Item = Document<'a>>> {
    documents: D,
    n_documents: usize,
}

impl<'a, D: Iterator<Item = Document<'a>>> Iterator for Batches<'a, D> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let first_number = self.n_documents + 1;
        let mut batch = vec![];
        let mut n_bytes = 0;
        while n_bytes < BATCH_BYTES {
            let Some(document) = self.documents.next() else { break };
            n_bytes += document.bytes.len();
            batch.push(document);
        }
        self.n_documents += batch.len();
        (!batch.is_empty()).then_some(Batch { first_number, documents: batch })
    }
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
