//! What was taken locally, told to the server once.
//!
//! The first call for a key that was limited locally carries a TB.DEBIT of what is missing
//! in the local bucket, in the same write and ahead of its own command. From that moment it
//! counts as sent, so that no other call carries it. When the server has it, the local
//! bucket is forgotten; when it did not reach the server, it is owed again; when that is not
//! known, the local bucket goes on limiting, and the debt is never sent again.

use crate::client::Inner;
use crate::limiter::Shape;
use crate::observe::Count;
use crate::table::Deficit;
use crate::Cost;

/// One bucket that a call is about.
pub(super) struct Debtor<'call> {
    /// Where it is in the local table; `None` while nothing is in that.
    hash: Option<u64>,
    shape: &'call Shape,
    key: &'call [u8],
}

impl<'call> Debtor<'call> {
    pub(super) fn new(
        inner: &Inner,
        shape: &'call Shape,
        subject: &[u8],
        key: &'call [u8],
    ) -> Self {
        let hash = inner
            .local
            .is_in_use()
            .then(|| inner.hash(shape.name(), subject));
        Self { hash, shape, key }
    }
}

/// The debts that one call carries.
pub(super) struct Debts<'call> {
    inner: &'call Inner,
    owed: Vec<Owed<'call>>,
}

struct Owed<'call> {
    debtor: &'call Debtor<'call>,
    hash: u64,
    deficit: Deficit,
    /// Whether it may have left.
    sent: bool,
}

impl<'call> Debts<'call> {
    pub(super) const fn none(inner: &'call Inner) -> Self {
        Self {
            inner,
            owed: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, debtors: &'call [Debtor<'call>]) {
        for debtor in debtors {
            let limit = debtor.shape.limit.exact();
            let local = &self.inner.local;
            let deficit = debtor.hash.and_then(|hash| {
                let deficit = local.take_deficit(hash, limit)?;
                Some((hash, deficit))
            });
            if let Some((hash, deficit)) = deficit {
                self.owed.push(Owed {
                    debtor,
                    hash,
                    deficit,
                    sent: false,
                });
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// One TB.DEBIT for each.
    pub(super) fn commands(&self) -> impl Iterator<Item = redis::Cmd> + '_ {
        self.owed.iter().map(|owed| {
            let amount = Cost::of(owed.deficit.owed());
            super::wire::debit(owed.debtor.key, owed.debtor.shape, amount)
        })
    }

    /// From now on it is not known whether they arrive.
    pub(super) fn are_sent(&mut self) {
        for owed in &mut self.owed {
            owed.sent = true;
        }
    }

    /// The server's replies to them, in the same order: `true` where it has debited.
    pub(super) fn are_answered(&mut self, replies: impl Iterator<Item = bool>) {
        for (owed, debited) in self.owed.iter_mut().zip(replies) {
            if debited {
                let limit = owed.debtor.shape.limit.exact();
                let local = &self.inner.local;
                local.settled(owed.hash, limit, &owed.deficit);
                self.inner.watch.count(Count::Settled);
            } else {
                owed.sent = false;
            }
        }
    }
}

impl Drop for Debts<'_> {
    fn drop(&mut self) {
        for owed in self.owed.iter().filter(|owed| !owed.sent) {
            let limit = owed.debtor.shape.limit.exact();
            let local = &self.inner.local;
            local.not_sent(owed.hash, limit, &owed.deficit);
        }
    }
}
