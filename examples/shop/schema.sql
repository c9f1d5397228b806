create table if not exists products (
  name text primary key,
  stock bigint not null check (stock >= 0)
);
create table if not exists orders (
  id text primary key,
  customer text not null,
  product text not null references products,
  quantity bigint not null check (quantity > 0),
  shipped bigint not null default 0,
  placed_at bigint not null
);
insert into products (name, stock) values ('coffee', 40), ('tea', 100), ('teapot', 5)
on conflict (name) do nothing;
