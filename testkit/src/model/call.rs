//! Whole commands, given as texts.

use std::collections::HashSet;

use super::{whole, Amount, Rate, SpecReply, SpecStore, TextError};

impl SpecStore {
    /// A whole command as a client sends it, its name in any case.
    ///
    /// # Errors
    ///
    /// What is wrong with the first text that is refused, or
    /// [`TextError::Call`]; nothing is changed then.
    pub fn call(&mut self, args: &[&[u8]], now_us: i64) -> Result<SpecReply, TextError> {
        let (name, args) = args.split_first().ok_or(TextError::Call)?;
        let name = name.to_ascii_uppercase();
        if name == b"TB.MACQUIRE" {
            return self.macquire_texts(args, now_us);
        }
        let &[key, capacity, rate, ref rest @ ..] = args else {
            return Err(TextError::Call);
        };
        let numbers = || Ok((Amount::parse(capacity)?, Rate::parse(rate)?));
        let four = match (name.as_slice(), rest) {
            (b"TB.PEEK", []) => {
                let (capacity, rate) = numbers()?;
                self.peek(key, &capacity, &rate, &Amount::parse(b"1")?, now_us)
            }
            (b"TB.RESERVE", [cost, max_wait_ms]) => {
                let ((capacity, rate), cost) = (numbers()?, Amount::parse(cost)?);
                let max_wait_ms = whole(max_wait_ms)?;
                self.reserve(key, &capacity, &rate, &cost, &max_wait_ms, now_us)
            }
            (name, [amount]) => {
                let ((capacity, rate), amount) = (numbers()?, Amount::parse(amount)?);
                match name {
                    b"TB.ACQUIRE" => self.acquire(key, &capacity, &rate, &amount, now_us),
                    b"TB.PEEK" => self.peek(key, &capacity, &rate, &amount, now_us),
                    b"TB.CREDIT" => self.credit(key, &capacity, &rate, &amount, now_us),
                    b"TB.DEBIT" => self.debit(key, &capacity, &rate, &amount, now_us),
                    _ => return Err(TextError::Call),
                }
            }
            _ => return Err(TextError::Call),
        };
        Ok(SpecReply::Four(four))
    }

    fn macquire_texts(&mut self, args: &[&[u8]], now_us: i64) -> Result<SpecReply, TextError> {
        let groups = args.chunks_exact(4);
        if !groups.remainder().is_empty() || !(1..=64).contains(&groups.len()) {
            return Err(TextError::Call);
        }
        let mut calls = Vec::new();
        for group in groups {
            let numbers = (Amount::parse(group[1])?, Rate::parse(group[2])?);
            calls.push((group[0], numbers.0, numbers.1, Amount::parse(group[3])?));
        }
        let keys: HashSet<_> = calls.iter().map(|call| call.0).collect();
        if keys.len() < calls.len() {
            return Err(TextError::Call);
        }
        Ok(self.macquire(&calls, now_us))
    }
}
