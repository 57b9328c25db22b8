// An OpenID provider without people: `provider.mjs PORT AUDIENCE` gives access tokens to the client `machine` by its
// credentials, for the audience alone, with the client's name as `tenant`.
import http from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import { Provider, errors } from "oidc-provider";

const [, , port, audience] = process.argv;
const scope = "ringfence:call ringfence:operate";
const pair = await generateKeyPair("ES256", { extractable: true });
const key = { ...(await exportJWK(pair.privateKey)), kid: "k1", use: "sig", alg: "ES256" };

const resource = (context, asked) => {
  if (asked !== audience) throw new errors.InvalidTarget();
  return { scope, audience, accessTokenFormat: "jwt", accessTokenTTL: 300, jwt: { sign: { alg: "ES256" } } };
};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [key] },
  clients: [
    {
      client_id: "machine",
      client_secret: "machine-secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  scopes: scope.split(" "),
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
  extraTokenClaims: (context, token) => ({ tenant: token.clientId }),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => audience,
      getResourceServerInfo: resource,
      useGrantedResource: async () => true,
    },
  },
});
http.createServer(provider.callback()).listen(Number(port), "127.0.0.1");
