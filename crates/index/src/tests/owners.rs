//! Space that two entries have, at every step of the merges that move them.

use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_substrate::values::ValueWriter;

use super::{Ask, BackgroundJob, CheckSink, Step, Subject, gate, options};

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// A blob.
fn value(subject: &Subject, bytes: &[u8]) -> Vec<u8> {
    let writer = ValueWriter::new(&subject.env.blocks, Some(bytes.len() as u64));
    let mut writer = writer.unwrap();
    writer.append(bytes).unwrap();
    let (reference, runs) = writer.finish(None).unwrap();
    runs.keep();
    let mut content = Vec::new();
    reference.encode(&mut content);
    content
}

fn refer(subject: &mut Subject, key: &[u8], content: &[u8]) {
    let seq = subject.next_seq;
    subject.next_seq += 1;
    subject.tree.insert(key, Seq(seq), Data::Reference(content));
    subject.snapshots().publish(Seq(seq));
}

/// The problems that `check` reports, each once.
fn problems(subject: &Subject) -> Vec<String> {
    let mut sink = CheckSink::default();
    subject.tree.pause().check(&mut sink);
    sink.problems.into_iter().map(|problem| problem.what).collect()
}

/// A bottom with two blobs, or with one that two distant keys share; and a run above it.
fn prepared(is_lsm: bool, twice: bool) -> Subject {
    let options = options(4 * 1024);
    let mut subject =
        if is_lsm { Subject::lsm(options, 1024) } else { Subject::with(options, 1024) };
    for number in 0..1_500 {
        subject.tree.insert(&key(number), Seq(subject.next_seq), Data::Put(&[number as u8; 100]));
        subject.next_seq += 1;
    }
    subject.tree.run(Ask::Full.work(), &gate, &mut |_, _| Ok(())).unwrap();
    let shared = value(&subject, &[7; 9_000]);
    let other = if twice { shared.clone() } else { value(&subject, &[7; 9_000]) };
    refer(&mut subject, &key(20), &shared);
    refer(&mut subject, &key(1_480), &other);
    // One record takes both from the log.
    for ask in [Ask::Flush, Ask::Full] {
        subject.tree.run(ask.work(), &gate, &mut |_, _| Ok(())).unwrap();
    }
    for number in (0..1_500).step_by(100) {
        subject.tree.insert(&key(number + 1), Seq(subject.next_seq), Data::Put(&[9; 3_000]));
        subject.next_seq += 1;
    }
    subject.tree.run(Ask::Flush.work(), &gate, &mut |_, _| Ok(())).unwrap();
    subject
}

#[test]
fn two_owners_are_named_at_every_step_of_a_merge_and_one_is_not() {
    for is_lsm in [false, true] {
        for (twice, ask) in [(false, Ask::Full), (true, Ask::Full), (true, Ask::MergeAlone)] {
            let subject = prepared(is_lsm, twice);
            let named = usize::from(twice);
            let expected = vec!["two entries refer to the same space".to_owned(); named];
            assert_eq!(problems(&subject), expected);
            subject.tree.begin(ask.work(), &gate).unwrap();
            let mut steps = 0;
            while subject.tree.step(BackgroundJob::Merge, &mut |_, _| Ok(())).unwrap() == Step::More
            {
                steps += 1;
                assert_eq!(problems(&subject), expected, "LSM {is_lsm}, step {steps} of {ask:?}");
            }
            assert_eq!(problems(&subject), expected, "LSM {is_lsm}, after {ask:?}");
            assert!(steps > 0, "LSM {is_lsm}, {steps} steps of {ask:?}");
        }
    }
}
