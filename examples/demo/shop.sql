-- Purpose: the demo's shop: its items and orders, and the events that somebody received.
create schema duebox_demo_shop;
set search_path = duebox_demo_shop;

create table items (
    stock int not null check (stock >= 0)
);
insert into items values (10);

create table orders (
    id         bigint generated always as identity primary key,
    status     text not null default 'unpaid',
    created_at timestamptz not null default now(),
    paid_at    timestamptz,
    closed_at  timestamptz
);
-- Serves the sweep: orders in a status, oldest first.
create index on orders (status, created_at);

-- What the shop does with an order that is closed, in the same transaction: its item is for sale again.
create function release() returns trigger language plpgsql as $$
begin
    update duebox_demo_shop.items set stock = stock + 1;
    return null;
end $$;
create trigger release after update on orders for each row
    when (old.status = 'unpaid' and new.status = 'closed') execute function release();

create table arrived (
    seq bigint generated always as identity primary key,
    id  bigint not null,
    at  timestamptz not null default clock_timestamp()
);
