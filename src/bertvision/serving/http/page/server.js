// Talks to the server; every failure becomes an error whose message a person can read.

let token = null; // in memory alone

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // null where no answer came
  }
}

export function useToken(given) {
  token = given;
}

export const hasToken = () => token !== null;

export const get = (path, signal) => call(path, { method: "GET" }, signal);

export const post = (path, body, signal) => call(path, sending(JSON.stringify(body)), signal);

const sending = (json) => ({ method: "POST", body: json, headers: { "Content-Type": "application/json" } });

async function call(path, request, signal) {
  const headers = token === null ? request.headers : { ...request.headers, Authorization: `Bearer ${token}` };
  try {
    // No time-out here: the server has its own (--timeout) and says so. Relative paths: the page may stand behind a
    // proxy, in a folder of its own.
    const response = await fetch(path, { ...request, headers, signal });
    if (!response.ok) throw new ServerError(await refusal(response), response.status);
    return await response.json();
  } catch (error) {
    throw readable(error, signal);
  }
}

function readable(error, signal) {
  if (error instanceof ServerError) return error;
  if (signal?.aborted) return new ServerError("Stopped. Your text is still here.", null);
  if (error instanceof SyntaxError) return new ServerError("What came back is not from this service; is a proxy in the way?", null);
  if (error instanceof TypeError) return new ServerError("The server cannot be reached. Is it still running? Your text is still here.", null);
  return error;
}

async function refusal(response) {
  const said = await response.json().then((body) => String(body.detail), () => response.statusText);
  if (response.status === 401) return token === null ? "This server asks for a token." : "That is not the token of this server.";
  if (response.status === 429) return "The server is busy; try again in a moment.";
  return said;
}
