-- Executed by every replica at its start, so all of it may be repeated.

CREATE TABLE IF NOT EXISTS stock (
    item     BIGINT PRIMARY KEY,
    quantity BIGINT NOT NULL CHECK (quantity >= 0),
    -- The highest fencing token that has touched this row.
    fence    BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS orders (
    item     BIGINT NOT NULL REFERENCES stock,
    -- The client's own number: an order that is sent twice is one order.
    id       BIGINT NOT NULL,
    quantity BIGINT NOT NULL,
    PRIMARY KEY (item, id)
);

-- Something to sell.
INSERT INTO stock (item, quantity) VALUES (1, 100), (2, 100) ON CONFLICT DO NOTHING;
