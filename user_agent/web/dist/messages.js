import{a}from"./chunk-G4KPVY4Y.js";export{a as messages};
