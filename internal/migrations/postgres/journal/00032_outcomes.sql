-- The outcomes of rehearsals are those of every other run. What would fail with the error that it has
-- now says so beside its outcome.
update run_results
set rehearsed = '{"same_error":true,' || substr(rehearsed, 2)
where outcome = 'fails_same';

update run_results
set outcome = case outcome
    when 'passes' then 'replayed'
    when 'same_rows' then 'match'
    when 'other_rows' then 'drift'
    when 'not_rehearsed' then 'not_compared'
    else 'failed'
  end
where outcome in ('passes', 'fails_same', 'fails_differently', 'not_rehearsed', 'same_rows', 'other_rows', 'breaks');

update runs
set matched = (select count(*) from run_results r where r.run_id = runs.id and r.outcome = 'match'),
  drifted = (select count(*) from run_results r where r.run_id = runs.id and r.outcome = 'drift'),
  replayed = (select count(*) from run_results r where r.run_id = runs.id and r.outcome = 'replayed'),
  failed = (select count(*) from run_results r where r.run_id = runs.id and r.outcome = 'failed')
where kind = 'rehearse';
