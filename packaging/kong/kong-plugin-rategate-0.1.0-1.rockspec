package = "kong-plugin-rategate"
version = "0.1.0-1"
source = { url = "git+https://github.com/rategate/rategate.git" }
description = {
  summary = "Token budgets kept by rategate",
  license = "MIT OR Apache-2.0",
}
-- Kong brings what it needs: lua-cjson and lua-resty-http.
dependencies = { "lua >= 5.1" }
build = {
  type = "builtin",
  modules = {
    ["kong.plugins.rategate.handler"] = "kong/plugins/rategate/handler.lua",
    ["kong.plugins.rategate.schema"] = "kong/plugins/rategate/schema.lua",
  },
}
