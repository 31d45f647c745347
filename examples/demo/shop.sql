-- Purpose: the demo's shop: its orders, and what its consumer saw.
create schema duebox_demo_shop;
set search_path = duebox_demo_shop;

create table orders (
    id         bigint generated always as identity primary key,
    status     text not null default 'unpaid',
    created_at timestamptz not null default now(),
    paid_at    timestamptz,
    closed_at  timestamptz
);
-- Serves the sweep: orders in a status, oldest first.
create index on orders (status, created_at);

create table arrived (
    seq   bigint generated always as identity primary key,
    queue text not null,
    id    bigint not null,
    at    timestamptz not null default clock_timestamp(),
    found text,
    now   text
);

-- What a consumer does with a message about an order: look at the order, and close it only if it is still unpaid. So a
-- message that comes twice, or late, does no harm.
create function due(order_id bigint) returns void language plpgsql as $$
declare
    before text;
begin
    select status into before from duebox_demo_shop.orders where id = order_id for update;
    update duebox_demo_shop.orders set status = 'closed', closed_at = clock_timestamp()
    where id = order_id and status = 'unpaid';
    insert into duebox_demo_shop.arrived (queue, id, found, now)
    select 'due', id, before, status from duebox_demo_shop.orders where id = order_id;
end $$;
