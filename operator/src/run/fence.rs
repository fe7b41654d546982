//! Connections that carry nothing unless this replica leads.
//!
//! A call checks the term before it is sent, but the library writes to the socket later. A process that
//! is suspended in between would send the call when it is resumed, when another replica leads. So the term
//! is checked again at each write to the socket.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

use super::term::Terms;

/// A connection that fails when it is written to and this replica does not lead.
pub(crate) struct Fenced<T> {
    connection: T,
    /// `None` if it may be written to at any time.
    terms: Option<Terms>,
}

impl<T> Fenced<T> {
    pub(crate) const fn new(connection: T, terms: Option<Terms>) -> Self {
        Self { connection, terms }
    }

    /// # Errors
    ///
    /// If this replica does not lead, and has to for this.
    fn check(&self) -> io::Result<()> {
        if self.terms.as_ref().is_some_and(|terms| terms.time_left().is_zero()) {
            return Err(io::Error::other("this replica does not lead any more"));
        }
        Ok(())
    }
}

impl<T: Connection> Connection for Fenced<T> {
    fn connected(&self) -> Connected {
        self.connection.connected()
    }
}

impl<T: Read + Unpin> Read for Fenced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buf)
    }
}

impl<T: Write + Unpin> Write for Fenced<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.connection).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.connection).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::Arc, time::Duration};

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::run::{
        clock::Clock,
        term::{Renewed, Term},
    };

    async fn write(fenced: &mut Fenced<TokioIo<DuplexStream>>, text: &str) -> io::Result<usize> {
        poll_fn(|cx| Pin::new(&mut *fenced).poll_write(cx, text.as_bytes())).await
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_unless_the_term_is_valid() {
        let clock = Clock::ahead(&Arc::default());
        let terms = Terms::new(clock.clone());
        let (ours, mut theirs) = duplex(100);
        let mut fenced = Fenced::new(TokioIo::new(ours), Some(terms.clone()));
        assert!(write(&mut fenced, "standby ").await.is_err());
        let second = Duration::from_secs(1);
        let lease = Renewed { at: clock.moment(), lasts: second };
        terms.set(Some(Term { number: 1, lease: Some(lease) }));
        assert_eq!(write(&mut fenced, "leads").await.ok(), Some(5));
        tokio::time::advance(second).await;
        assert!(write(&mut fenced, " expired").await.is_err(), "although no one ended the term");
        drop(fenced);
        let mut received = String::new();
        theirs.read_to_string(&mut received).await.expect("text");
        assert_eq!(received, "leads");
    }

    #[tokio::test]
    async fn a_connection_without_a_fence_is_written_to_at_any_time() {
        let (ours, _theirs) = duplex(100);
        let mut open = Fenced::new(TokioIo::new(ours), None);
        assert_eq!(write(&mut open, "list").await.ok(), Some(4));
    }
}
