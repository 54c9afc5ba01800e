local typedefs = require "kong.db.schema.typedefs"

return {
  name = "rategate",
  fields = {
    { protocols = typedefs.protocols_http },
    {
      config = {
        type = "record",
        fields = {
          { server = typedefs.url({ required = true, default = "http://127.0.0.1:8080" }) },
          { token = { type = "string", referenceable = true, encrypted = true } },
          { tokens_rule = { type = "string", required = true } },
          { requests_rule = { type = "string" } },
          -- "consumer", "ip" or "header:NAME".
          { key = { type = "string", required = true, default = "consumer" } },
          { estimate = { type = "integer", required = true, gt = 0 } },
          { ttl = { type = "string", required = true, default = "2min" } },
          { used_field = { type = "string", required = true, default = "total_tokens", match = "^[%w_]+$" } },
          { used_header = typedefs.header_name },
          { timeout_ms = { type = "integer", required = true, default = 1000, gt = 0 } },
          { fail_open = { type = "boolean", required = true, default = false } },
        },
      },
    },
  },
}
