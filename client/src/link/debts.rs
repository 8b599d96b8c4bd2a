//! What was taken locally, told to the server once.
//!
//! The first call for a key that was limited locally carries a TB.DEBIT of what is missing
//! in the local bucket, in the same write and ahead of its own command. The local bucket is
//! forgotten at that moment, so that only one call carries it. When the call does not
//! reach the server, it is put back; when that is not known, it is put back as sent: it
//! goes on limiting, and is never sent again.

use tokenbucket_core::Amount;

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
    cost: Amount,
}

impl<'call> Debtor<'call> {
    pub(super) fn new(
        inner: &Inner,
        shape: &'call Shape,
        subject: &[u8],
        key: &'call [u8],
        cost: Amount,
    ) -> Self {
        let hash = inner
            .local
            .is_in_use()
            .then(|| inner.hash(shape.name(), subject));
        Self {
            hash,
            shape,
            key,
            cost,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Still here.
    Kept,
    /// On its way, or lost.
    Sent,
    /// The server has it.
    Settled,
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
    fate: Fate,
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
                let deficit = local.take_deficit(hash, limit, debtor.cost)?;
                Some((hash, deficit))
            });
            if let Some((hash, deficit)) = deficit {
                self.owed.push(Owed {
                    debtor,
                    hash,
                    deficit,
                    fate: Fate::Kept,
                });
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// One TB.DEBIT for each, none for those of which nothing is left to say.
    pub(super) fn commands(&self) -> impl Iterator<Item = redis::Cmd> + '_ {
        self.owed.iter().map(|owed| {
            let amount = Cost::of(owed.deficit.owed());
            super::wire::debit(owed.debtor.key, owed.debtor.shape, amount)
        })
    }

    /// From now on it is not known whether they arrive.
    pub(super) fn are_sent(&mut self) {
        for owed in &mut self.owed {
            owed.fate = Fate::Sent;
        }
    }

    /// The server's replies to them, in the same order: `true` where it has debited.
    pub(super) fn are_answered(&mut self, replies: impl Iterator<Item = bool>) {
        for (owed, debited) in self.owed.iter_mut().zip(replies) {
            owed.fate = if debited { Fate::Settled } else { Fate::Kept };
            if debited {
                self.inner.watch.count(Count::Settled);
            }
        }
    }
}

impl Drop for Debts<'_> {
    fn drop(&mut self) {
        for owed in &self.owed {
            let deficit = match owed.fate {
                Fate::Kept => owed.deficit,
                Fate::Sent => owed.deficit.after_sending(),
                Fate::Settled => continue,
            };
            let limit = owed.debtor.shape.limit.exact();
            let local = &self.inner.local;
            local.put_back(owed.hash, limit, owed.debtor.cost, &deficit);
        }
    }
}
