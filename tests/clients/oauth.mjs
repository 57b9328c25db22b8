// The TypeScript client with the credentials of a machine: `oauth.mjs URL ISSUER` prints what a program printed, and
// the scopes that it took.
import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [, , url, expectedIssuer] = process.argv;
const authProvider = new ClientCredentialsProvider({
  clientId: "machine",
  clientSecret: "machine-secret",
  expectedIssuer,
});
const client = new Client({ name: "clients", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
const asked = { language: "shell", code: "echo $((6 * 7))" };
const result = await client.callTool({ name: "execute_code", arguments: asked });
console.log(result.structuredContent.stdout.trim(), authProvider.tokens().scope);
await client.close();
