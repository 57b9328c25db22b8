// Run with: ringfence run examples/hello.ts
enum Mood {
  Calm = 'calm',
}

interface Greeting {
  text: string;
  mood: Mood;
}

const greeting: Greeting = { text: 'Hello from TypeScript!', mood: Mood.Calm };
console.log(`${greeting.text} (${greeting.mood})`);
greeting as Greeting;
