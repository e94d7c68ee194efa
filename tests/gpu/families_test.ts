/** Every architecture on a card. `deno task test:gpu`. */
import { registerFamilyTests, registerTinyTests } from "../families.ts";
import { hasCard } from "./card.ts";

const ignore = !hasCard();
registerFamilyTests("cuda", { ignore });
registerTinyTests("cuda", { ignore });
