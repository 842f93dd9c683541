//! Transport of messages, and their handling by bookies and the metadata store.

use super::*;

impl World {
    /// Sends a call: it may get lost, be late, or come twice. The caller gives up after a while.
    pub(super) fn call(&mut self, client: Client, attempt: u32, position: usize, bookie: BookieId, ask: Ask) {
        self.numbers += 1;
        let call = Call {
            id: self.numbers,
            client,
            attempt,
            position,
            bookie,
            ask,
        };
        self.calls.insert(call.id, call.clone());
        self.after(TIMEOUT, Event::GivesUp(call.id));
        if !self.is_healed() && self.random.one_in(12) {
            return;
        }
        let delay = self.delay();
        if self.random.one_in(20) {
            let late = self.delay() + 200;
            self.after(late, Event::Arrives(call.clone()));
        }
        self.after(delay, Event::Arrives(call));
    }

    fn delay(&mut self) -> u64 {
        let usual = 1 + self.random.below(20) as u64;
        if !self.is_healed() && self.random.one_in(10) {
            usual + self.random.below(400) as u64
        } else {
            usual
        }
    }

    pub(super) fn arrives(&mut self, call: Call) {
        let (mutation, is_healed) = (self.mutation, self.is_healed());
        let Some(bookie) = self.bookies.get_mut(&call.bookie) else {
            return;
        };
        if bookie.is_down || bookie.cut_off == Some(call.client) {
            return;
        }
        let raw = bookie.handle(&call.ask, mutation);
        let life = bookie.lives;
        if is_healed || !self.random.one_in(12) {
            let delay = self.delay();
            self.after(delay, Event::Answers(call.id, raw, life));
        }
    }

    pub(super) fn put_metadata(&mut self, client: Client, metadata: LedgerMetadata, version: Version) {
        self.numbers += 1;
        let id = self.numbers;
        self.puts.insert(id, client);
        let delay = self.delay();
        self.after(delay, Event::MetadataArrives(id, Box::new(metadata), version));
        // The answer does not come, and the client looks what is there; the write may still land after that.
        if !self.is_healed() && self.random.one_in(6) {
            let wait = 1 + self.random.below(40) as u64;
            self.after(wait, Event::MetadataAnswers(id, None));
        }
    }

    pub(super) fn metadata_arrives(&mut self, id: u64, metadata: LedgerMetadata, version: Version) {
        let fits = version.0 == self.version || self.is(Mutation::AnyVersionIsOverwritten);
        let written = fits.then(|| {
            let was = self.stored.state;
            self.version += 1;
            self.stored = metadata;
            if matches!(was, State::Closed { .. }) && was != self.stored.state {
                self.wrong = Some(format!("{was:?} became {:?}", self.stored.state));
            }
            Version(self.version)
        });
        let delay = self.delay();
        self.after(delay, Event::MetadataAnswers(id, written));
    }

    /// Answers a metadata write; if the write failed, with the metadata stored at the time of the answer.
    pub(super) fn metadata_answers(&mut self, id: u64, written: Option<Version>) {
        let Some(client) = self.puts.remove(&id) else {
            return;
        };
        let current = (self.stored.clone(), Version(self.version));
        let answer = match written {
            Some(version) => MetadataAnswer::Written(version),
            None => MetadataAnswer::Current(Some(current)),
        };
        self.metadata_told(client, answer);
    }
}

impl Bookie {
    fn handle(&mut self, ask: &Ask, mutation: Option<Mutation>) -> Raw {
        let is = |wrong| mutation == Some(wrong);
        let never = is(Mutation::NothingFences);
        match ask {
            Ask::Add { is_recovery, .. } if self.is_fenced && !is_recovery => {
                Err(CallError::Refused(Status::Fenced))
            }
            Ask::Add {
                is_recovery: true, ..
            } if is(Mutation::RecoveryWritesNothing) => Ok(None),
            Ask::Add {
                entry,
                body,
                is_deferred,
                ..
            } => {
                // What is on disk stays there.
                let is_kept = self.entries.contains_key(&entry.0) && !self.unsynced.contains(&entry.0);
                if *is_deferred && !is_kept {
                    self.unsynced.insert(entry.0);
                } else {
                    self.unsynced.remove(&entry.0);
                }
                self.entries.insert(entry.0, body.clone());
                Ok(None)
            }
            Ask::Force(_) => {
                if !is(Mutation::ForceDoesNothing) {
                    self.unsynced.clear();
                }
                Ok(None)
            }
            Ask::TellConfirmed(lac) => {
                self.told = self.told.max(lac.0 + 1);
                Ok(None)
            }
            Ask::Lac => Ok(self.entries.last_key_value().map(|(_, body)| body.clone())),
            Ask::Newest => {
                self.is_fenced |= !never;
                Ok(self.entries.last_key_value().map(|(_, body)| body.clone()))
            }
            Ask::Read { entry, is_fencing } => {
                self.is_fenced |= *is_fencing && !never && !is(Mutation::RecoveryReadsDoNotFence);
                Ok(self.entries.get(&entry.0).cloned())
            }
        }
    }
}
