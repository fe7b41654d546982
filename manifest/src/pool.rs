//! Reads the documents of a file on several threads and passes them on in the order of the file.
//!
//! YAML is slow to parse, and documents are independent. Workers read batches of documents in turn
//! and wait when they are a few chunks ahead of the consumer, which bounds the memory.

use std::{
    num::NonZero,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use kube_batch_yaml::{Document, documents};

use crate::item::{ItemEvent, read_document};

/// Documents of one batch together have at least this many bytes. Guessed: a few hundred objects,
/// so that a batch is worth a message.
const BATCH_BYTES: usize = 128 << 10;
/// Bytes or events after which a worker sends a chunk. Guessed.
const CHUNK_BYTES: usize = 128 << 10;
const CHUNK_EVENTS: usize = 256;
/// Maximum number of chunks that a worker is ahead.
const CHUNKS_AHEAD: usize = 2;
/// Maximum number of threads; more do not help one consumer. Guessed.
const MAX_THREADS: usize = 8;

/// Reads all documents of a file.
pub(crate) fn read_documents<'a>(
    source: &'a str,
    bytes: &'a [u8],
    consume: &mut dyn FnMut(ItemEvent<'a>),
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
                    let mut chunks =
                        ChunkSender { sender, events: vec![], n_bytes: 0, is_open: true };
                    // Every worker splits the whole file: this is cheap, and avoids a list
                    // of possibly millions of documents.
                    let batches = Batches { documents: documents(bytes), n_documents: 0 };
                    for batch in batches.skip(first).step_by(n_threads) {
                        chunks.read(source, &batch);
                    }
                });
                receiver
            })
            .collect();
        for worker in receivers.iter().cycle() {
            loop {
                // The first worker without a batch left sent the last one. A worker that
                // panicked ends the loop too, and the scope propagates the panic.
                let Ok(chunk) = worker.recv() else { return };
                chunk.events.into_iter().for_each(&mut *consume);
                if chunk.ends_batch {
                    break;
                }
            }
        }
    });
}

/// Consecutive documents, with the number of the first, from 1.
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
    events: Vec<ItemEvent<'a>>,
    ends_batch: bool,
}

/// Collects events and sends them in chunks.
struct ChunkSender<'a> {
    sender: SyncSender<Chunk<'a>>,
    events: Vec<ItemEvent<'a>>,
    n_bytes: usize,
    /// Whether the consumer is still receiving.
    is_open: bool,
}

impl<'a> ChunkSender<'a> {
    fn read(&mut self, source: &'a str, batch: &Batch<'a>) {
        for (at, document) in batch.documents.iter().enumerate() {
            if !self.is_open {
                return;
            }
            read_document(source, batch.first_number + at, document, &mut |event| self.add(event));
        }
        self.send(true);
    }

    fn add(&mut self, event: ItemEvent<'a>) {
        self.n_bytes += event.n_bytes();
        self.events.push(event);
        if self.n_bytes >= CHUNK_BYTES || self.events.len() >= CHUNK_EVENTS {
            self.send(false);
        }
    }

    fn send(&mut self, ends_batch: bool) {
        self.n_bytes = 0;
        let chunk = Chunk { events: std::mem::take(&mut self.events), ends_batch };
        self.is_open &= self.sender.send(chunk).is_ok();
    }
}
