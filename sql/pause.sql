-- Purpose: pause something, for all relays; one that is paused already stays as it is, with its time and its reason.
-- Parameters: $1 what text ('relay', 'closer', 'sweep', 'tier.NAME', 'rule.NAME'), $2 why text, $3 login of whoever does
--             it text, $4 their host text; $2 to $4 may be null.
-- Index: primary key of state.
insert into state (name, info)
values ('pause.' || $1::text,
        jsonb_strip_nulls(jsonb_build_object('reason', $2::text, 'role', current_user, 'login', $3::text,
                                             'host', coalesce($4::text, host(inet_client_addr())))))
    on conflict (name) do nothing
