-- Who is on what is wrong, by its kind and subject; without a subject on all of the kind.
create table finding_owners (
  kind text collate "C" not null,
  subject text collate "C" not null,
  owner text not null,
  note text not null,
  taken_at bigint not null,
  primary key (kind, subject)
);
