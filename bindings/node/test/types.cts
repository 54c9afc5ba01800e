// Compiled, and never run: the types of a module of the old kind.
import rategate = require('rategate')

const limiter: rategate.Limiter = new rategate.Limiter('10/s')
const permits: Promise<number> = limiter.acquire().then((grant: rategate.Grant) => grant.permits)
permits.catch((error: unknown) => error instanceof rategate.RateLimitError)
