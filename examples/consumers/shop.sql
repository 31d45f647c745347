-- Purpose: the shop of the consumer examples. Runs in psql, in the schema of its search_path.
create table items (
    id    bigint primary key,
    stock int not null check (stock >= 0)
);
create table orders (
    id         bigint primary key,
    item_id    bigint not null references items,
    status     text not null default 'unpaid',   -- unpaid, paid, closed
    due_at     timestamptz not null,              -- unpaid until then, it is closed
    paid_at    timestamptz,
    closed_at  timestamptz
);

-- An order, its stock and its message in one transaction: the message says when to look, not what to do.
create function place(order_id bigint, item bigint, pays_within interval) returns void language sql as $$
    update items set stock = stock - 1 where id = item;
    insert into orders (id, item_id, due_at) values (order_id, item, now() + pays_within);
    select duebox.enqueue('order-unpaid', order_id::text, 'order.created',
                          json_build_object('order', order_id)::text);
$$;

-- A payment is a conditional update like the close. False: the order is closed, and the money goes back.
create function pay(order_id bigint) returns boolean language sql as $$
    with paid as (
        update orders set status = 'paid', paid_at = now() where id = order_id and status = 'unpaid' returning id)
    select exists (select from paid);
$$;
