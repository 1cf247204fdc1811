// The calls of a plan (see plan.py) through the TypeScript SDK, second generation: @modelcontextprotocol/client.
// It lies beside the packages when it runs, since that is where node looks for them.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const plan = JSON.parse(process.argv[2]);

async function connected() {
  const client = new Client({ name: "oncely-tests", version: "1" });
  if (plan.connect.url) {
    await client.connect(new StreamableHTTPClientTransport(new URL(plan.connect.url)));
  } else {
    const [command, ...args] = plan.connect.command;
    await client.connect(new StdioClientTransport({ command, args }));
  }
  return client;
}

async function attempt(client, call) {
  const options = call.timeout_s === undefined ? {} : { timeout: call.timeout_s * 1000 };
  const meta = call.key === undefined ? {} : { _meta: { "dev.oncely/idempotency-key": call.key } };
  try {
    const got = await client.callTool({ name: call.tool, arguments: call.arguments, ...meta }, options);
    const text = got.content.filter((item) => item.text !== undefined).map((item) => item.text);
    return { text, is_error: got.isError === true };
  } catch (error) {
    return { failed: `${error.name}: ${error.message}` };
  }
}

const answers = [];
let client = await connected();
for (const [at, call] of plan.calls.entries()) {
  if (at > 0 && plan.connections === "each") {
    await client.close();
    client = await connected();
  }
  answers.push(await attempt(client, call));
}
await client.close();
console.log(JSON.stringify(answers));
