// An OpenID provider without users: `provider.mjs PORT AUDIENCE` issues access tokens only for the audience, with the
// client's name as `tenant`: to `machine` by client credentials, to `app` by a code with PKCE. Consent is automatic.
// `POST /rotate` replaces the key. `POST /sign` signs {header, claims, key}: `key` is "own", or "foreign" for an
// unpublished key.
import http from "node:http";
import { SignJWT, exportJWK, generateKeyPair } from "jose";
import { Provider, errors } from "oidc-provider";

const [, , port, audience] = process.argv;
const issuer = `http://127.0.0.1:${port}`;
const scope = "ringfence:call ringfence:operate ringfence:execute ringfence:data";

const resource = (context, asked) => {
  if (asked !== audience) throw new errors.InvalidTarget();
  return { scope, audience, accessTokenFormat: "jwt", accessTokenTTL: 300, jwt: { sign: { alg: "ES256" } } };
};

async function made(number) {
  const pair = await generateKeyPair("ES256", { extractable: true });
  const jwk = { ...(await exportJWK(pair.privateKey)), kid: `k${number}`, use: "sig", alg: "ES256" };
  const provider = new Provider(issuer, {
    jwks: { keys: [jwk] },
    clients: [
      {
        client_id: "machine",
        client_secret: "machine-secret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
      {
        client_id: "app",
        token_endpoint_auth_method: "none",
        application_type: "native",
        grant_types: ["authorization_code"],
        redirect_uris: ["http://127.0.0.1:9/callback"],
        response_types: ["code"],
      },
    ],
    scopes: ["openid", ...scope.split(" ")],
    clientDefaults: { id_token_signed_response_alg: "ES256" },
    enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
    cookies: { keys: ["of this process"] },
    extraTokenClaims: (context, token) => ({ tenant: token.clientId }),
    findAccount: (context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    interactions: { url: (context, interaction) => `/interaction/${interaction.uid}` },
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
  return { provider, key: pair.privateKey, number };
}

async function agree({ provider }, request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: "somebody" } });
  }
  const known = grantId && (await provider.Grant.find(grantId));
  const grant = known || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope = [], missingResourceScopes = {} } = prompt.details;
  grant.addOIDCScope(missingOIDCScope.join(" "));
  for (const [name, scopes] of Object.entries(missingResourceScopes)) grant.addResourceScope(name, scopes.join(" "));
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

async function sign(request) {
  let text = "";
  for await (const part of request) text += part;
  const { header, claims, key } = JSON.parse(text);
  const used = key === "own" ? current.key : (await generateKeyPair("ES256")).privateKey;
  const whole = { alg: "ES256", typ: "at+jwt", kid: `k${current.number}`, ...header };
  const now = Math.floor(Date.now() / 1000);
  const usual = { iss: issuer, aud: audience, iat: now, exp: now + 300, sub: "x", tenant: "machine", scope };
  return new SignJWT({ ...usual, ...claims }).setProtectedHeader(whole).sign(used);
}

let current = await made(1);
http
  .createServer(async (request, response) => {
    if (request.url.startsWith("/interaction/")) return agree(current, request, response);
    if (request.method === "POST" && request.url === "/rotate") current = await made(current.number + 1);
    else if (request.method === "POST" && request.url === "/sign") return response.end(await sign(request));
    else return current.provider.callback()(request, response);
    response.end();
  })
  .listen(Number(port), "127.0.0.1");
