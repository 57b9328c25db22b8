// The TypeScript client with client credentials: `oauth.mjs URL ISSUER` prints the output of a program, and the scopes
// of the token.
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
